package rendezvous

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"time"

	"rankstorm/rank"
)

// What the keys of a job are for; part of their derivation.
const (
	infoGossip  = "rankstorm 1 gossip"
	infoControl = "rankstorm 1 control"
	infoData    = "rankstorm 1 data"
)

// errOtherSecret says that the other end proved to own another key.
var errOtherSecret = errors.New("the other end has another secret")

// keys are what a job derives from its secret: HKDF-SHA256 with the hash of the
// job key as salt, so that two jobs with one secret share nothing.
type keys struct {
	gossip  []byte             // AES-256, of memberlist's keyring
	data    []byte             // of the tokens in hellos of data connections
	control ed25519.PrivateKey // of every process's certificate
	public  ed25519.PublicKey
	links   *tls.Config // either side of a control link or host socket
}

// deriveKeys derives the keys of a job. The same arguments give the same keys.
func deriveKeys(secret []byte, job [32]byte) (*keys, error) {
	prk, err := hkdf.Extract(sha256.New, secret, job[:])
	if err != nil {
		return nil, err
	}
	k := &keys{}
	var seed []byte
	for _, d := range []struct {
		key  *[]byte
		info string
	}{{&k.gossip, infoGossip}, {&seed, infoControl}, {&k.data, infoData}} {
		if *d.key, err = hkdf.Expand(sha256.New, prk, d.info, 32); err != nil {
			return nil, err
		}
	}
	k.control = ed25519.NewKeyFromSeed(seed)
	k.public = ed25519.PublicKey(k.control[32:])
	cert, err := selfSigned(k.control, k.public)
	if err != nil {
		return nil, err
	}
	k.links = &tls.Config{
		Certificates: []tls.Certificate{cert},
		MinVersion:   tls.VersionTLS13,
		// Names and authorities mean nothing here. What counts is the one key, in verify, at both ends.
		InsecureSkipVerify: true,
		ClientAuth:         tls.RequireAnyClientCert,
		VerifyConnection:   k.verify,
		// Every link proves itself: nothing is resumed.
		SessionTicketsDisabled: true,
		// One share in the first message: no second trip, and half the work of the hybrid default.
		CurvePreferences: []tls.CurveID{tls.X25519},
		// Messages are written whole: small first records would only mean more calls.
		DynamicRecordSizingDisabled: true,
	}
	return k, nil
}

// selfSigned is the certificate that carries the key. It is the same at every
// process; its dates are not looked at, clocks need not agree.
func selfSigned(key ed25519.PrivateKey, public ed25519.PublicKey) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// verify accepts one key and nothing else. TLS itself has checked that the
// other end owns the key it shows.
func (k *keys) verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) != 1 || !k.public.Equal(s.PeerCertificates[0].PublicKey) {
		return errOtherSecret
	}
	return nil
}

// wrap makes a stream a protected one; the caller has set a deadline.
func (k *keys) wrap(conn net.Conn, dialer bool) (net.Conn, error) {
	t := tls.Server(conn, k.links)
	if dialer {
		t = tls.Client(conn, k.links)
	}
	if err := t.Handshake(); err != nil {
		return nil, err
	}
	return t, nil
}

// The knock of a process with a secret says in the clear who knocks, at most:
// the hash of the job key stands where TLS names the server, and the protocols
// are knockProtocol, whoProtocol + host and pid, jobProtocol + job key. That is
// how a controller can name a process whose secret differs.
const (
	knockProtocol = "rankstorm"
	whoProtocol   = "who "
	jobProtocol   = "job "
	maxProtocol   = 255 // bytes, of TLS
)

// knocking is the configuration of a process that knocks.
func (k *keys) knocking(job [32]byte, jobKey string, own *rank.Record) *tls.Config {
	c := k.links.Clone()
	c.ServerName = hashText(job)
	c.NextProtos = []string{knockProtocol}
	for _, p := range []string{whoProtocol + who(own), jobProtocol + jobKey} {
		if len(p) <= maxProtocol {
			c.NextProtos = append(c.NextProtos, p)
		}
	}
	return c
}

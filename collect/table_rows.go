package collect

func renderTable(d *Document, o TableOptions) string { return "" }

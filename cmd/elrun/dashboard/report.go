package dashboard

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"github.com/elrun/elrun/event/timeline"
)

// WriteReport writes the page of a job as one HTML file, which loads nothing else and shows the snapshot.
func WriteReport(to io.Writer, s timeline.Snapshot) error {
	data, err := json.Marshal(s) // it escapes <, so that no text of the job ends the element
	if err != nil {
		return fmt.Errorf("dashboard: encode the snapshot: %w", err)
	}
	_, err = strings.NewReplacer(
		`<link rel="stylesheet" href="style.css">`, `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">
<style>`+"\n"+file("style.css")+`</style>`,
		`<script type="module" src="app.js"></script>`, "",
		`</body>`, `<script type="application/json" id="data">`+string(data)+"</script>\n<script type=\"module\">\n"+script()+"</script>\n</body>",
	).WriteString(to, file("index.html"))
	if err != nil {
		return fmt.Errorf("dashboard: write the report: %w", err)
	}
	return nil
}

// script returns the modules of the page as one: what one exports the others see by the same name.
func script() string {
	imports, exports := regexp.MustCompile(`(?m)^import .*;\n`), regexp.MustCompile(`(?m)^export `)
	all := file("model.js") + file("charts.js") + file("app.js")
	return exports.ReplaceAllString(imports.ReplaceAllString(all, ""), "")
}

// file returns a file of the page.
func file(name string) string {
	b, _ := fs.ReadFile(files, "page/"+name) // it is embedded
	return string(b)
}

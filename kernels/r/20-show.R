# What a value or a plot looks like: text as R prints it, tables and widgets as HTML, plots as pictures.
folder <- tempfile("soma-plots")
dir.create(folder)
pages <- file.path(folder, "page-%05d.png")

options(device = function(...) {
  picture <- if (isTRUE(capabilities("cairo"))) "cairo" else getOption("bitmapType")
  grDevices::png(pages, width = 800, height = 600, res = 100, type = picture)
})

# All pages that were drawn, in order. A page is in its file only when its device is closed.
show_plots <- function() {
  if ("grDevices" %in% loadedNamespaces()) grDevices::graphics.off()
  for (page in sort(list.files(folder, full.names = TRUE))) {
    size <- file.size(page)
    bytes <- readBin(page, "raw", size)
    unlink(page)
    if (length(bytes) > 0) send("display", bundle(list("image/png" = base64(bytes))))
  }
}

show_value <- function(value) {
  if (inherits(value, "htmlwidget")) return(send("result", bundle(list("text/plain" = paste0("<", class(value)[1], ">"), "text/html" = widget_page(value)))))
  if (inherits(value, "shiny.tag") || inherits(value, "shiny.tag.list") || inherits(value, "html")) return(send("result", bundle(list("text/plain" = "<html>", "text/html" = paste(as.character(value), collapse = "\n")))))
  text <- paste(utils::capture.output(print_value(value)), collapse = "\n")
  if (is.data.frame(value)) send("result", bundle(list("text/plain" = text, "text/html" = table_page(value))))
  else if (nzchar(text)) send("text", text)
}

print_value <- function(value) if (isS4(value)) methods::show(value) else print(value)

table_page <- function(frame, most = 60) {
  escaped <- function(text) gsub(">", "&gt;", gsub("<", "&lt;", gsub("&", "&amp;", text, fixed = TRUE), fixed = TRUE), fixed = TRUE)
  shown <- utils::head(frame, most)
  cells <- as.matrix(format(shown))
  head <- paste0("<th>", escaped(c("", names(frame))), "</th>", collapse = "")
  rows <- vapply(seq_len(nrow(shown)), function(at) paste0("<tr><th>", escaped(rownames(shown)[at]), "</th>", paste0("<td>", escaped(cells[at, ]), "</td>", collapse = ""), "</tr>"), "")
  note <- if (nrow(frame) > most) paste0("<p>", nrow(frame), " rows, the first ", most, " are shown</p>") else ""
  paste0("<table><thead><tr>", head, "</tr></thead><tbody>", paste0(rows, collapse = ""), "</tbody></table>", note)
}

# One page with everything in it. pandoc would do that as well, but is seldom there.
widget_page <- function(widget) {
  place <- tempfile("soma-widget")
  dir.create(place)
  on.exit(unlink(place, recursive = TRUE))
  htmlwidgets::saveWidget(widget, file.path(place, "page.html"), selfcontained = FALSE, libdir = "lib")
  text_of <- function(path) paste(readLines(file.path(place, path), warn = FALSE, encoding = "UTF-8"), collapse = "\n")
  inlined <- function(line, pattern, before, after) {
    found <- regmatches(line, regexec(pattern, line))[[1]]
    if (length(found) < 2 || !file.exists(file.path(place, found[2]))) return(line)
    paste0(before, text_of(found[2]), after)
  }
  lines <- readLines(file.path(place, "page.html"), warn = FALSE, encoding = "UTF-8")
  lines <- vapply(lines, inlined, "", "<script src=\"([^\"]+)\"></script>", "<script>", "</script>")
  lines <- vapply(lines, inlined, "", "<link href=\"([^\"]+)\" rel=\"stylesheet\" ?/>", "<style>", "</style>")
  paste(lines, collapse = "\n")
}

# display(value), and display(html = "...") and the like.
display <- function(value, html, svg, markdown, json, latex, png) {
  if (!missing(value)) return(invisible(if (inherits(value, "htmlwidget")) send("display", bundle(list("text/html" = widget_page(value)))) else send("display", bundle(list("text/plain" = paste(utils::capture.output(print_value(value)), collapse = "\n"))))))
  data <- list()
  if (!missing(html)) data[["text/html"]] <- paste(html, collapse = "\n")
  if (!missing(svg)) data[["image/svg+xml"]] <- paste(svg, collapse = "\n")
  if (!missing(markdown)) data[["text/markdown"]] <- paste(markdown, collapse = "\n")
  if (!missing(latex)) data[["text/latex"]] <- paste(latex, collapse = "\n")
  if (!missing(png)) data[["image/png"]] <- base64(if (is.raw(png)) png else readBin(png, "raw", file.size(png)))
  if (!missing(json)) return(invisible(send("display", paste0("{\"data\":{\"application/json\":", json, "},\"metadata\":{}}"))))
  invisible(send("display", bundle(data)))
}

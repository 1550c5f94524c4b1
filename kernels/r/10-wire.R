# The frames of kernels/README.md. What is printed needs none: R writes it to the descriptors 1 and 2 at once, and the guest
# reads those before it handles a frame.
requests <- fifo("/dev/fd/3", "rb", blocking = TRUE)
answers <- file("/dev/fd/4", "wb", raw = TRUE)
interrupts <- fifo("/dev/fd/5", "rb", blocking = FALSE)

send <- function(words, payload = raw(0)) {
  if (is.character(payload)) payload <- charToRaw(enc2utf8(payload))
  writeBin(c(charToRaw(paste0(words, " ", length(payload), "\n")), payload), answers)
  flush(answers)
}

# Exactly so many bytes; NULL when the guest is gone. R cannot be interrupted while it reads from a pipe: within a cell
# (`patient`), it looks and sleeps.
receive <- function(length, patient = NULL) {
  parts <- list()
  while (length > 0) {
    part <- if (is.null(patient)) readBin(requests, "raw", min(length, 65536))
      else tryCatch(readBin(patient, "raw", min(length, 65536)), error = function(problem) NULL)
    if (is.null(part)) {
      Sys.sleep(0.02)
      next
    }
    if (length(part) == 0) return(NULL)
    parts[[length(parts) + 1]] <- part
    length <- length - length(part)
  }
  if (length(parts) == 0) raw(0) else do.call(c, parts)
}

next_frame <- function(patient = NULL) {
  line <- raw(0)
  repeat {
    byte <- receive(1, patient)
    if (is.null(byte)) return(NULL)
    if (byte == 10L) break
    line <- c(line, byte)
  }
  words <- strsplit(rawToChar(line), " ", fixed = TRUE)[[1]]
  payload <- receive(as.numeric(words[length(words)]), patient)
  if (is.null(payload)) return(NULL)
  list(words = words, payload = payload)
}

as_text <- function(bytes) {
  text <- rawToChar(bytes)
  Encoding(text) <- "UTF-8"
  text
}

quoted <- function(text) {
  text <- enc2utf8(as.character(text))
  text <- iconv(text, "UTF-8", "UTF-8", sub = "\ufffd")
  text <- gsub("\\", "\\\\", text, fixed = TRUE)
  text <- gsub("\"", "\\\"", text, fixed = TRUE)
  text <- gsub("\n", "\\n", text, fixed = TRUE)
  text <- gsub("\r", "\\r", text, fixed = TRUE)
  text <- gsub("\t", "\\t", text, fixed = TRUE)
  if (any(grepl("[\001-\037]", text))) for (code in 1:31) text <- gsub(intToUtf8(code), sprintf("\\u%04x", code), text, fixed = TRUE)
  paste0("\"", text, "\"")
}

bundle <- function(data) {
  paste0("{\"data\":{", paste0(quoted(names(data)), ":", vapply(data, quoted, ""), collapse = ","), "},\"metadata\":{}}")
}

base64 <- function(bytes) {
  signs <- charToRaw("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  missing <- (3 - length(bytes) %% 3) %% 3
  triples <- matrix(as.integer(c(bytes, raw(missing))), nrow = 3)
  whole <- triples[1, ] * 65536L + triples[2, ] * 256L + triples[3, ]
  result <- signs[rbind(whole %/% 262144L, whole %/% 4096L %% 64L, whole %/% 64L %% 64L, whole %% 64L) + 1L]
  if (missing > 0) result[length(result) - seq_len(missing) + 1] <- charToRaw("=")
  rawToChar(result)
}

# Runs a cell: one expression after the other in the global environment. The last visible value is the cell's; those before
# it are printed, as at R's own prompt.
# An empty pipe that does not block is an error to R.
was_interrupted <- function() length(tryCatch(readBin(interrupts, "raw", 64), error = function(problem) raw(0))) > 0

# What tells this sandbox from its copies; in a copy, what was random is so no more.
machine <- function() tryCatch(readLines("/etc/machine-id", 1, warn = FALSE), error = function(problem) "", warning = function(problem) "")
sandbox <- machine()

renew <- function() {
  if (identical(sandbox, machine())) return()
  sandbox <<- machine()
  if (exists(".Random.seed", globalenv(), inherits = FALSE)) rm(".Random.seed", envir = globalenv())
}

execute <- function(words, payload) {
  renew()
  length <- as.numeric(words[4])
  code <- payload[seq_len(length)]
  before <- set_variables(payload[seq_along(payload) > length])
  can_ask <<- grepl("i", words[3], fixed = TRUE)
  was_interrupted()
  status <- tryCatch(
    if (any(code == 0)) fail("Error", "the code has a NUL byte in it, which R cannot read", "") else run(as_text(code), grepl("s", words[3], fixed = TRUE)),
    interrupt = function(condition) "interrupted"
  )
  can_ask <<- FALSE
  while (sink.number() > 0) sink()
  repeat if (tryCatch({ show_plots(); TRUE }, interrupt = function(condition) FALSE, error = function(problem) { message(conditionMessage(problem)); TRUE })) break
  if (status != "ok" && was_interrupted()) status <- "interrupted"
  restore_variables(before)
  if (is.character(failure) && status == "error") send("error", failure)
  failure <<- NULL
  flush(stdout())
  send(paste("done", status))
}

failure <- NULL

fail <- function(name, value, traceback) {
  failure <<- paste0("{\"name\":", quoted(name), ",\"value\":", quoted(value), ",\"traceback\":", quoted(traceback), "}")
  "error"
}

run <- function(code, silent) {
  parsed <- tryCatch(parse(text = code, keep.source = TRUE, encoding = "UTF-8"), error = identity)
  if (inherits(parsed, "error")) {
    message <- sub("^<text>:", "line ", conditionMessage(parsed))
    return(fail("ParseError", message, paste0("Error: ", message)))
  }
  calls <- list()
  last <- NULL
  status <- tryCatch(withCallingHandlers({
    for (at in seq_along(parsed)) {
      # One frame with nothing of ours between it and the cell's own calls.
      shown <- withVisible(eval(parsed[[at]], globalenv()))
      if (at == length(parsed)) last <- shown
      else if (shown$visible) print_value(shown$value)
      if (was_interrupted()) stop(structure(class = c("interrupt", "condition"), list(message = "interrupted", call = NULL)))
    }
    if (!is.null(last) && last$visible && !silent) {
      assign(".Last.value", last$value, envir = as.environment("soma"))
      show_value(last$value)
    }
    "ok"
  }, error = function(problem) {
    calls <<- sys.calls()
  }), error = function(problem) {
    call <- conditionCall(problem)
    where <- if (is.null(call)) "" else deparse(call, nlines = 1)[1]
    # What the cell itself stops at its top would be called ours.
    where <- if (where %in% c("", own_eval)) "" else paste0(" in ", where)
    line <- paste0("Error", where, ": ", conditionMessage(problem))
    name <- class(problem)[1]
    fail(if (name == "simpleError") "Error" else name, conditionMessage(problem), paste(c(line, own_calls(calls)), collapse = "\n"))
  })
  status
}

# The call below which everything is the cell's.
own_eval <- "eval(parsed[[at]], globalenv())"

# The cell's calls begin after our `eval` and end before R's handling of the error.
own_calls <- function(calls) {
  texts <- vapply(calls, function(call) deparse(call, nlines = 1)[1], "")
  begin <- which(texts == own_eval)
  if (length(begin) == 0) return(character(0))
  texts <- texts[-seq_len(min(max(begin), length(texts)))]
  texts <- texts[!grepl("^(\\.handleSimpleError|h\\(simpleError|doTryCatch|\\(function \\(problem\\)|stop\\()", texts)]
  if (length(texts) == 0) character(0) else paste0(rev(seq_along(texts)), ": ", rev(texts))
}

set_variables <- function(bytes) {
  before <- list()
  ends <- which(bytes == 0)
  start <- 1
  for (end in ends) {
    entry <- as_text(bytes[seq_len(end - start) + start - 1])
    start <- end + 1
    cut <- regexpr("=", entry, fixed = TRUE)
    if (cut < 2) next
    name <- substr(entry, 1, cut - 1)
    before[[name]] <- Sys.getenv(name, NA)
    do.call(Sys.setenv, stats::setNames(list(substring(entry, cut + 1)), name))
  }
  before
}

restore_variables <- function(before) {
  for (name in names(before)) {
    if (is.na(before[[name]])) Sys.unsetenv(name) else do.call(Sys.setenv, stats::setNames(list(before[[name]]), name))
  }
}

complete <- function(code, cursor) {
  before <- substr(code, 1, cursor)
  matches <- character(0)
  start <- cursor
  tryCatch({
    ask <- function(name) utils::getFromNamespace(name, "utils")
    ask(".assignLinebuffer")(before)
    ask(".assignEnd")(nchar(before))
    token <- ask(".guessTokenFromLine")()
    ask(".completeToken")()
    matches <- ask(".retrieveCompletions")()
    start <- cursor - nchar(token)
  }, error = function(problem) NULL)
  list <- if (length(matches) > 0) paste0(quoted(utils::head(matches, 500)), collapse = ",") else ""
  send("completions", paste0("{\"matches\":[", list, "],\"start\":", start, ",\"end\":", cursor, "}"))
}

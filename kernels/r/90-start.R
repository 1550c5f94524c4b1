# Says `ready` and serves what the guest asks until it closes the pipe.
attach(list(display = display, .Last.value = NULL), name = "soma", warn.conflicts = FALSE)
send("ready", paste0("{\"language\":\"r\",\"version\":\"", R.version$major, ".", R.version$minor, "\",\"flavour\":\"plain\"}"))
repeat {
  # An interrupt that finds no cell ends nothing, and does not wait for the next one.
  frame <- suspendInterrupts({
    frame <- next_frame()
    tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(condition) NULL)
    frame
  })
  if (is.null(frame)) break
  tryCatch({
    if (frame$words[1] == "execute") execute(frame$words, frame$payload)
    else if (frame$words[1] == "complete") complete(as_text(frame$payload), as.numeric(frame$words[2]))
  }, interrupt = function(condition) NULL)
}
quit("no", runLast = FALSE)

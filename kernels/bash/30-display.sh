# display TYPE FILE: shows a file in a notebook's way, `display image/png plot.png`.
# While a cell runs, the pipe is not open as 4 but as 10, where bash keeps it (first, see 90-loop.sh) and no command sees it.
display() {
  local type=${1-} file=${2-} content
  if [[ $# != 2 || ! $type =~ ^[a-z]+/[A-Za-z0-9.+-]+$ ]]; then
    builtin echo 'display: write: display TYPE FILE, for example: display image/png plot.png' >&2
    builtin return 2
  fi
  if [[ ! -r $file || -d $file ]]; then
    builtin echo "display: $file cannot be read" >&2
    builtin return 1
  fi
  if [[ ! -p /proc/$BASHPID/fd/10 ]]; then
    builtin echo 'display: descriptor 10 is in use by something else' >&2
    builtin return 1
  fi
  case $type in
    application/json | *+json) content=$(<"$file") ;;
    text/* | image/svg+xml | application/javascript) content=$(<"$file"); __soma_quote "$content"; content=$__soma_quoted ;;
    *) content=$(base64 -w0 -- "$file") || builtin return; content=\"$content\" ;;
  esac
  __soma_send display "{\"data\":{\"$type\":$content},\"metadata\":{}}" 10
}

# The frames of kernels/README.md, with nothing but bash's own commands.
# The shell is an interactive one that reads this text from descriptor 0: an interrupt, `break` or a failed expansion then
# ends the line that runs, never the shell, and 90-loop.sh has another line for it. What an interactive shell says at its
# start for want of a terminal goes to /dev/null; descriptor 6 is what its errors are from here on.
[[ -n ${__soma_started-} ]] || { exec 2>&6 6>&- 10>&-; PS1=; PS2=; export -n PS1 PS2; set +o history; set +m; shopt -u checkwinsize; }

# __soma_send WORDS PAYLOAD [DESCRIPTOR]
__soma_send() {
  local LC_ALL=C
  builtin printf '%s %d\n%s' "$1" "${#2}" "$2" >&"${3-4}"
}

# __soma_quote TEXT: as a JSON string, in __soma_quoted
__soma_quote() {
  local text=$1 code sign
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\n'/\\n}
  text=${text//$'\r'/\\r}
  text=${text//$'\t'/\\t}
  if [[ $text == *[$'\001'-$'\037']* ]]; then
    for code in {1..31}; do
      builtin printf -v sign '\\x%02x' "$code"
      builtin printf -v sign "$sign"
      builtin printf -v code '\\u%04x' "$code"
      text=${text//"$sign"/$code}
    done
  fi
  __soma_quoted=\"$text\"
}

# __soma_read LENGTH: up to LENGTH bytes, or to the first NUL; in __soma_part, with what it took in __soma_took
__soma_read() {
  local LC_ALL=C
  __soma_part=
  __soma_took=0
  (($1 > 0)) || builtin return 0
  IFS= builtin read -r -d '' -n "$1" -u 3 __soma_part || [[ -n $__soma_part ]] || builtin exit 0
  __soma_took=${#__soma_part}
  # A NUL is what ends a part early.
  ((__soma_took == $1)) || __soma_took=$((__soma_took + 1))
}

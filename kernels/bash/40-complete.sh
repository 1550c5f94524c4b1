# What could stand at the cursor: commands, functions, variables and files, as bash's own completion finds them.
__soma_complete() {
  local before=${2:0:$1} word start kind=() found=() match list= at=0
  word=${before##*[[:space:];|&()<>\"\'=]}
  start=$((${#before} - ${#word}))
  case $word in
    \$\{*) builtin mapfile -t found < <(builtin compgen -v -P '${' -- "${word:2}") ;;
    \$*) builtin mapfile -t found < <(builtin compgen -v -P '$' -- "${word:1}") ;;
    *)
      before=${before:0:start}
      if [[ $before =~ (^|[\;\|\&\(\n])[[:space:]]*$ ]]; then kind=(-c); fi
      builtin mapfile -t found < <(builtin compgen "${kind[@]}" -f -- "$word")
      ;;
  esac
  for match in "${found[@]}"; do
    [[ $match != *__soma_* && $list != *"\"$match\""* ]] || builtin continue
    ((++at <= 500)) || builtin break
    __soma_quote "$match"
    list+=,$__soma_quoted
  done
  __soma_send completions "{\"matches\":[${list#,}],\"start\":$start,\"end\":$((start + ${#word}))}"
}

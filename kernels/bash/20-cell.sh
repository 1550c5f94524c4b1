# Before and after a cell. The cell itself is evaluated by 90-loop.sh outside of any function, so that what it declares stays.

# What tells this sandbox from its copies; in a copy, what was random is so no more.
__soma_renew() {
  local machine=
  { IFS= builtin read -r machine </etc/machine-id; } 2>/dev/null
  if [[ ${__soma_machine-$machine} != "$machine" && $machine =~ ^[0-9a-f]{8} ]]; then
    RANDOM=$((0x${machine:0:4} ^ 0x${machine:4:4}))
  fi
  __soma_machine=$machine
}

# Waits for a cell and leaves its text in __soma_code. Ends the shell when there is nobody to ask for one.
__soma_next() {
  local IFS=$' \t\n' line words left
  if [[ -n $__soma_running ]]; then
    # The last cell did not come to its end: a byte tells that it was interrupted, otherwise it was `continue`.
    if builtin read -r -N 1 -t 0.1 -u 5 line; then __soma_over interrupted; else __soma_over ok; fi
  fi
  while :; do
    IFS= builtin read -r -u 3 line || builtin exit 0
    builtin set -f
    words=($line)
    [[ $__soma_options == *f* ]] || builtin set +f
    case ${words[0]} in
      execute) __soma_renew; __soma_receive "${words[3]}" $((words[4] - words[3])) "${words[2]}" && builtin return 0 ;;
      complete) __soma_read "${words[2]}"; __soma_complete "${words[1]}" "$__soma_part" ;;
      *)
        left=${words[${#words[@]} - 1]}
        while ((left > 0)); do __soma_read "$left"; left=$((left - __soma_took)); done
        ;;
    esac
  done
}

# __soma_receive CODE-LENGTH VARIABLES-LENGTH FLAGS
__soma_receive() {
  local left=$1 bad= name
  __soma_names=()
  __soma_before=()
  __soma_code=
  while ((left > 0)); do
    __soma_read "$left"
    __soma_code+=$__soma_part
    left=$((left - __soma_took))
    if ((left > 0)) || [[ $__soma_took -gt 0 && ${#__soma_part} -eq 0 ]]; then bad=1; fi
  done
  left=$2
  while ((left > 0)); do
    __soma_read "$left"
    left=$((left - __soma_took))
    name=${__soma_part%%=*}
    [[ $name =~ ^[A-Za-z_][A-Za-z_0-9]*$ && $name != __soma_* ]] || builtin continue
    __soma_names+=("$name")
    __soma_before+=("$(builtin declare -p "$name" 2>/dev/null)")
    builtin export "$name=${__soma_part#*=}"
  done
  # Interrupts that came too late for the cell they were meant for.
  while builtin read -t 0 -u 5 && builtin read -r -N 1 -t 0.1 -u 5 name; do :; done
  __soma_running=1
  [[ -n $bad ]] || builtin return 0
  __soma_send error '{"name":"CommandFailed","value":"the code has a NUL byte in it, which no shell can read","traceback":""}'
  __soma_over error
  builtin return 1
}

# __soma_over STATUS
__soma_over() {
  local at name
  __soma_running=
  if [[ $1 == interrupted ]]; then
    while builtin read -t 0 -u 5 && builtin read -r -N 1 -t 0.1 -u 5 name; do :; done
  fi
  for at in "${!__soma_names[@]}"; do
    name=${__soma_names[at]}
    builtin unset "$name"
    # `declare -p` wrote this line itself; without -g it would make a variable of this function.
    [[ -z ${__soma_before[at]} ]] || builtin eval "${__soma_before[at]/#declare /declare -g }"
  done
  __soma_names=()
  __soma_send "done $1" ''
}

# __soma_end EXIT-STATUS
__soma_end() {
  [[ -n $__soma_running ]] || builtin return 0
  __soma_options=$-
  if (($1 == 0)); then
    __soma_over ok
  elif (($1 > 128)) && builtin read -t 0 -u 5; then
    __soma_over interrupted
  else
    __soma_send error "{\"name\":\"CommandFailed\",\"value\":\"exit status $1\",\"traceback\":\"\"}"
    __soma_over error
  fi
}

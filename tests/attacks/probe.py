# Which system calls pass the filters: each is made once, with arguments that make no sense, by a
# child of its own that is ended when it does not return. Prints their numbers.
import json, select
def waits(child):
    'Whether a process sleeps in its call: one that wants the processor and gets none does not.'
    try: return open('/proc/%d/stat' % child).read().rsplit(')', 1)[1].split()[0] in 'STtZX'
    except OSError: return True
def word_of(child, reader):
    'What it said of its call; nothing when the call does not come back.'
    asleep = 0
    while asleep < 3:
        if select.select([reader], [], [], 0.15)[0]: return os.read(reader, 1)
        asleep = asleep + 1 if waits(child) else 0
    return b''
passed = []
for number in range(0, 480):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.alarm(30)
        # Where an argument is a list of requests, one that is allowed.
        first = {157: 3, 135: 0xffffffff, 56: 0xffff}.get(number, -1)
        second = {202: 1}.get(number, -1)
        answer = call(number, *([first, second] + [-1] * 4))
        os.write(writer, b'n' if answer == -errno.ENOSYS else b'y')
        os._exit(0)
    os.close(writer)
    word = word_of(child, reader)
    os.close(reader)
    try: os.kill(child, signal.SIGKILL)
    except OSError: pass
    try: os.waitpid(child, 0)
    except OSError: pass
    # One that never came back was not refused. Two are the kernel's own: they end whoever calls
    # them from anywhere but its trampolines for probes, and it lets no filter see them.
    if word != b'n' and number not in (335, 336): passed.append(number)
print(json.dumps(passed))

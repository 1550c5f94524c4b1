// Interrupts. A waiting cell is ended by SIGINT's handler, which needs the event loop.
// A computing one is ended from a second thread: it reads a byte from descriptor 5, looks whether the event loop turns,
// and if not, makes V8 leave whatever it computes. The thread costs time and memory, so it is started with the first
// cell that can compute for long.

// ASKED: when the last byte was read, in milliseconds since the start. TURNED: how often the event loop has answered.
// HANDLED: when the last signal was handled.
const ASKED = 0;
const TURNED = 1;
const HANDLED = 2;
const started = Date.now();
const shared = new Int32Array(new SharedArrayBuffer(12));
let watchdog = null;
let onInterrupt = () => {};

const WATCHDOG = `
  const { workerData: { shared, started }, parentPort } = require('worker_threads');
  const { Session } = require('inspector');
  const socket = new (require('net').Socket)({ fd: 5, readable: true, writable: false });
  let busy = false;
  socket.on('error', () => {});
  socket.on('data', () => {
    Atomics.store(shared, 0, Date.now() - started);
    if (busy) return;
    look(0);
  });
  // Looks again a little later: a computation may begin between the event loop's answer and the signal.
  function look(times) {
    const turned = Atomics.load(shared, 1);
    parentPort.postMessage('turn');
    if (Atomics.wait(shared, 1, turned, 40) === 'timed-out') return end();
    if (times < 3) setTimeout(() => Atomics.load(shared, 2) < Atomics.load(shared, 0) - 100 && look(times + 1), 50);
  }
  function end() {
    busy = true;
    const session = new Session();
    session.connectToMainThread();
    session.post('Runtime.terminateExecution', () => {
      session.disconnect();
      busy = false;
      parentPort.postMessage('ended');
    });
  }
`;

function startWatchdog() {
  if (watchdog !== null) return;
  try {
    const { Worker } = builtin('worker_threads');
    watchdog = new Worker(WATCHDOG, {
      eval: true, workerData: { shared, started }, env: {}, execArgv: ['--no-warnings'],
      resourceLimits: { maxOldGenerationSizeMb: 32, maxYoungGenerationSizeMb: 2, stackSizeMb: 1 },
    });
    watchdog.on('message', (word) => {
      Atomics.add(shared, TURNED, 1);
      Atomics.notify(shared, TURNED);
      // What was ended may have been the signal's handler itself.
      if (word === 'ended') soon(() => soon(onInterruptAsked));
    });
    watchdog.on('error', () => {});
    watchdog.unref();
  } catch (error) {
    watchdog = false;
    print('stderr', `a computing cell cannot be interrupted here: ${reasonOf(error)}\n`);
  }
}

// Without a call, a loop's head or a template nothing runs for long.
function mayTakeLong(code) {
  return code.includes('(') || code.includes('`');
}

process.on('SIGINT', () => {
  Atomics.store(shared, HANDLED, Date.now() - started);
  onInterrupt();
});

// Runs cells. V8's inspector evaluates them in REPL mode, in which `const`, `let` and `class` stay for the next cell and
// may be declared again, and `await` may stand at the top.

const { Session } = builtin('inspector');
const session = new Session();
session.connect();

function ask(method, parameters, callback) {
  session.post(method, parameters, callback);
}

let taken = null;
Object.defineProperty(globalThis, '__soma__', {
  value: Object.freeze({ load, bring, meta, take: (value) => (taken = value) }),
});

// What tells this sandbox from its copies. In a copy `Math.random` would go on with the numbers of all others, and V8 has
// no way to seed it anew: there it draws from the kernel's source, as that of OpenSSL is a copy too.
const machine = () => {
  try {
    return files.readFileSync('/etc/machine-id', 'latin1');
  } catch {
    return '';
  }
};
let sandbox = machine();

function renew() {
  const now = machine();
  if (now === sandbox) return;
  sandbox = now;
  const source = files.openSync('/dev/urandom', 'r');
  const drawn = Buffer.alloc(4096);
  let used = drawn.length;
  Math.random = function random() {
    if (used === drawn.length) {
      files.readSync(source, drawn);
      used = 0;
    }
    used += 8;
    return Number(drawn.readBigUInt64LE(used - 8) >> 11n) / 2 ** 53;
  };
}

// One cell at a time; a cell that was interrupted may still end some day, and is then nobody's.
let current = null;

function execute(words, payload) {
  const [, number, flags, codeLength] = words;
  const cell = { number, silent: flags.includes('s'), before: new Map(), began: Date.now() - started };
  current = cell;
  renew();
  answers.allowed = flags.includes('i');
  const length = Number(codeLength);
  setVariables(cell, payload.subarray(length));
  let code = payload.subarray(0, length).toString();
  if (mayTakeLong(code)) startWatchdog();
  const typed = flags.includes('t');
  try {
    if (typed) code = withoutTypes(code);
  } catch (error) {
    return fail(cell, describe(error));
  }
  evaluate(cell, code, rewriteImports(code, !typed));
}

function evaluate(cell, code, script) {
  const expression = `${script}\n//# sourceURL=<cell-${cell.number}>`;
  const release = holdFirstPromise();
  let compiling = true;
  ask('Runtime.evaluate', { expression, replMode: true, silent: true, objectGroup: 'cell' }, (error, answer) => {
    release();
    if (current !== cell) return;
    if (error) return endAfterSignal(cell);
    const problem = answer.exceptionDetails;
    const value = valueOf(problem?.exception ?? answer.result);
    ask('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
    if (problem === undefined) succeed(cell, value);
    else fail(cell, compiling ? describeSyntax(value, problem, script, cell.number) : describe(value));
  });
  compiling = false;
}

// The inspector waits for the promise of the cell, but does not hold it; where it is collected as garbage, because the
// cell waits for something that nothing refers to, V8 aborts the process. It is the first promise that is made.
const held = new Set();

function holdFirstPromise() {
  let first = null;
  const stop = builtin('v8').promiseHooks.onInit((promise) => {
    stop();
    first = promise;
    held.add(promise);
  });
  return () => {
    if (first === null) stop();
    held.delete(first);
  };
}

// The inspector answers with descriptions; the value itself is handed over by a function that it calls.
function valueOf(description) {
  if (description.objectId === undefined) {
    const special = description.unserializableValue;
    if (special === undefined) return description.value;
    return special.endsWith('n') ? BigInt(special.slice(0, -1)) : Number(special);
  }
  taken = null;
  ask('Runtime.callFunctionOn', { objectId: description.objectId, functionDeclaration: 'function () { "use strict"; __soma__.take(this); }', silent: true });
  const value = taken;
  taken = null;
  return value;
}

async function succeed(cell, last) {
  try {
    const value = await last;
    if (current !== cell) return;
    if (value !== undefined && !cell.silent) {
      const data = await formsOf(value);
      if (current !== cell) return;
      if (data === null) send('text', textOf(value));
      else sendJson('result', { data, metadata: {} });
    }
    if (unshown.size > 0) await Promise.all(unshown);
    finish(cell, 'ok');
  } catch (error) {
    fail(cell, describe(error));
  }
}

function fail(cell, described) {
  if (current !== cell) return;
  // A command that the interrupt ended throws; what ended is the cell.
  if (interruptAsked(cell)) return endAfterSignal(cell);
  sendJson('error', described);
  finish(cell, 'error');
}

function finish(cell, status) {
  if (current !== cell) return;
  current = null;
  answers.allowed = false;
  answers.waiting = null;
  for (const [name, value] of cell.before) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  flush();
  send(`done ${status}`, '');
  if (watchdog === null) soon(startWatchdog);
}

// The signal of this interrupt is still to be handled; it must not meet the next cell.
function endAfterSignal(cell) {
  later(() => finish(cell, 'interrupted'), 100);
}

function interruptAsked(cell) {
  return Atomics.load(shared, ASKED) >= cell.began;
}

onInterrupt = () => {
  if (current !== null) finish(current, 'interrupted');
};

function onInterruptAsked() {
  if (current !== null && interruptAsked(current)) finish(current, 'interrupted');
}

function setVariables(cell, bytes) {
  for (let start = 0; start < bytes.length; ) {
    let end = bytes.indexOf(0, start);
    if (end < 0) end = bytes.length;
    const entry = bytes.toString('utf8', start, end);
    const cut = entry.indexOf('=');
    start = end + 1;
    if (cut < 1) continue;
    const name = entry.slice(0, cut);
    if (!cell.before.has(name)) cell.before.set(name, process.env[name]);
    process.env[name] = entry.slice(cut + 1);
  }
}

function withoutTypes(code) {
  const { stripTypeScriptTypes } = builtin('module');
  if (typeof stripTypeScriptTypes !== 'function') {
    throw new Error(`TypeScript needs Node 22.13 or newer (this is Node ${process.versions.node}): write JavaScript, or take a template with a newer Node`);
  }
  try {
    return stripTypeScriptTypes(code, { mode: 'strip' });
  } catch (error) {
    // Enumerations and namespaces are more than types: code has to be made for them, and lines may move.
    if (error.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') throw error;
    return stripTypeScriptTypes(code, { mode: 'transform' });
  }
}

// `console` and `process.stdout`/`stderr` become frames.
// Made at the first use: most of a kernel's first milliseconds would otherwise go into streams nobody writes to.

function standardStream(kind, descriptor) {
  const { Writable } = builtin('stream');
  const stream = new Writable({
    decodeStrings: false,
    write(chunk, encoding, callback) {
      const plain = typeof chunk !== 'string' || encoding === 'utf8' || encoding === 'utf-8';
      print(kind, plain ? chunk : Buffer.from(chunk, encoding));
      callback();
    },
    // Nothing ends the streams of a process that goes on.
    destroy(error, callback) {
      callback(error);
    },
  });
  stream.fd = descriptor;
  stream._type = 'pipe';
  stream._isStdio = true;
  stream.end = (chunk, encoding, callback) => {
    const done = [chunk, encoding, callback].find((part) => typeof part === 'function');
    if (chunk !== undefined && chunk !== null && typeof chunk !== 'function') stream.write(chunk, typeof encoding === 'string' ? encoding : 'utf8');
    if (done) process.nextTick(done);
    return stream;
  };
  stream.destroySoon = stream.destroy = () => stream;
  return stream;
}

function lazily(object, name, make) {
  let made;
  Object.defineProperty(object, name, {
    configurable: true,
    enumerable: true,
    get: () => (made ??= make()),
    set: (value) => {
      made = value;
    },
  });
}

lazily(process, 'stdout', () => standardStream('stdout', 1));
lazily(process, 'stderr', () => standardStream('stderr', 2));

// Node's own console hands every value to the inspector as well, which keeps the last thousand alive.
let realConsole = null;
const { Console } = console;
const ONLY_INSPECTED = new Set(['Console', 'context', 'createTask', 'profile', 'profileEnd', 'timeStamp']);
for (const name of Object.keys(console)) {
  if (typeof console[name] !== 'function' || ONLY_INSPECTED.has(name)) continue;
  const method = { [name](...values) {
    realConsole ??= new Console({ stdout: process.stdout, stderr: process.stderr });
    return realConsole[name](...values);
  } }[name];
  Object.defineProperty(console, name, { value: method, writable: true, configurable: true, enumerable: true });
}
console.clear = () => send('clear', '');

process.on('exit', flush);

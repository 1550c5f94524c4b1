// `await input('name? ')`, and `prompt('name? ')`, which waits without letting anything else run, as browsers do.

const answers = { allowed: false, waiting: null };

function askFor(text, password) {
  if (!answers.allowed) throw new Error('nobody can answer here: this cell was run without a way to ask for input');
  if (answers.waiting !== null) throw new Error('another question waits for its answer already');
  sendJson('input', { prompt: text === undefined ? '' : String(text), password });
}

async function input(text, options) {
  askFor(text, options?.password === true);
  return new Promise((resolve, reject) => {
    answers.waiting = { resolve, reject };
  });
}

function prompt(text, options) {
  askFor(text, options?.password === true);
  let given = null;
  const bytes = Buffer.allocUnsafe(65536);
  answers.waiting = { resolve: (answer) => (given = { answer }), reject: (error) => (given = { error }) };
  try {
    while (given === null) {
      let length = 0;
      try {
        length = readSync(3, bytes);
        if (length === 0) process.exit();
      } catch (error) {
        if (error.code !== 'EAGAIN' && error.code !== 'EINTR') throw error;
        nap(2);
        continue;
      }
      received(Buffer.from(bytes.subarray(0, length)), handleFrame);
    }
  } finally {
    answers.waiting = null;
  }
  if (given.error) throw given.error;
  return given.answer;
}

function answered(word, payload) {
  const waiting = answers.waiting;
  answers.waiting = null;
  if (waiting === null) return;
  if (word === 'input') waiting.resolve(payload.toString());
  else waiting.reject(new Error(payload.toString()));
}

for (const [name, value] of Object.entries({ input, prompt })) {
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}

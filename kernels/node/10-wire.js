// The frames of kernels/README.md, in both directions.
// Everything goes through one descriptor and is written at once and in full: what is not yet written is nowhere else,
// so that a cell that prints without end waits for its reader and grows nothing.
'use strict';

// Program read; whatever a cell or its children read from here on is empty.
// The program's own `require`: what a cell sees under that name follows the working directory.
const builtin = require;
const files = builtin('fs');
const { writeSync, readSync } = files;
const { setTimeout: later, clearTimeout: notLater, setImmediate: soon } = globalThis;
files.closeSync(0);
files.openSync('/dev/null', 'r');

const OUT = 4;
const HEAD = 32;
const CAPACITY = 64 * 1024;
const napping = new Int32Array(new SharedArrayBuffer(4));

function nap(milliseconds) {
  Atomics.wait(napping, 0, 0, milliseconds);
}

function writeFully(bytes, start, end) {
  while (start < end) {
    try {
      start += writeSync(OUT, bytes, start, end - start);
    } catch (error) {
      if (error.code !== 'EAGAIN' && error.code !== 'EINTR') throw error;
      nap(1);
    }
  }
}

// What was printed and is not written yet: all of one stream, with room for the frame's line before it.
const pending = { kind: 'stdout', bytes: Buffer.allocUnsafe(HEAD + CAPACITY), used: 0, since: 0, timer: null };
const burst = { window: 0, writes: 0 };

function flush() {
  if (pending.timer !== null) {
    notLater(pending.timer);
    pending.timer = null;
  }
  if (pending.used === 0) return;
  const line = `${pending.kind} ${pending.used}\n`;
  const start = HEAD - line.length;
  pending.bytes.latin1Write(line, start);
  const end = HEAD + pending.used;
  pending.used = 0;
  writeFully(pending.bytes, start, end);
}

function send(words, payload) {
  flush();
  const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload;
  const line = `${words} ${bytes.length}\n`;
  if (bytes.length > CAPACITY) {
    writeFully(Buffer.from(line), 0, line.length);
    writeFully(bytes, 0, bytes.length);
  } else {
    const whole = Buffer.allocUnsafe(line.length + bytes.length);
    whole.latin1Write(line, 0);
    bytes.copy(whole, line.length);
    writeFully(whole, 0, whole.length);
  }
}

// Half a surrogate pair is legal in JavaScript, but in nobody's UTF-8.
function json(value) {
  const text = JSON.stringify(value, (_, part) => (typeof part === 'bigint' ? String(part) : part));
  if (!text.includes('\\ud')) return text;
  return text.replace(/\\(?:u(d[89a-f][0-9a-f]{2})|.)/g, (whole, half) => (half ? '\\ufffd' : whole));
}

function sendJson(words, value) {
  send(words, json(value));
}

// A few writes go out at once, so that a line is seen before a long computation; a flood is gathered.
function print(kind, data) {
  if (data.length === 0) return;
  if (pending.kind !== kind) {
    flush();
    pending.kind = kind;
  }
  if (data.length * 3 > CAPACITY) return printLong(kind, data);
  const most = typeof data === 'string' ? data.length * 3 : data.length;
  if (pending.used + most > CAPACITY) flush();
  const now = Date.now();
  if (pending.used === 0) pending.since = now;
  if (typeof data === 'string') pending.used += pending.bytes.write(data, HEAD + pending.used);
  else pending.used += Buffer.from(data.buffer, data.byteOffset, data.byteLength).copy(pending.bytes, HEAD + pending.used);
  if (now - burst.window >= 10 || now < burst.window) {
    burst.window = now;
    burst.writes = 0;
  }
  burst.writes += 1;
  if (burst.writes <= 200 || now - pending.since >= 10) return flush();
  if (pending.timer === null) pending.timer = later(flush, 10).unref();
}

function printLong(kind, data) {
  flush();
  const step = 256 * 1024;
  for (let start = 0; start < data.length; ) {
    let end = Math.min(start + step, data.length);
    if (typeof data === 'string' && end < data.length && (data.charCodeAt(end - 1) & 0xfc00) === 0xd800) end -= 1;
    if (typeof data === 'string') send(kind, data.slice(start, end));
    else send(kind, Buffer.from(data.buffer, data.byteOffset + start, end - start));
    start = end;
  }
}

// Takes frames apart, wherever the pipe has cut them.
const arriving = { chunks: [], length: 0, wanted: 0, words: null };

function received(chunk, handle) {
  arriving.chunks.push(chunk);
  arriving.length += chunk.length;
  while (arriving.length > 0) {
    if (arriving.words !== null && arriving.length < arriving.wanted) return;
    let all = arriving.chunks.length === 1 ? arriving.chunks[0] : Buffer.concat(arriving.chunks);
    if (arriving.words === null) {
      const end = all.indexOf(10);
      arriving.chunks = [all];
      if (end < 0) return;
      arriving.words = all.latin1Slice(0, end).split(' ');
      arriving.wanted = Number(arriving.words[arriving.words.length - 1]);
      all = all.subarray(end + 1);
      arriving.chunks = [all];
      arriving.length = all.length;
      if (all.length < arriving.wanted) return;
    }
    const words = arriving.words;
    const payload = all.subarray(0, arriving.wanted);
    const rest = all.subarray(arriving.wanted);
    arriving.chunks = rest.length > 0 ? [rest] : [];
    arriving.length = rest.length;
    arriving.words = null;
    handle(words, payload);
  }
}

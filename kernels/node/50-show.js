// What a value looks like: text as Node's own prompt shows it, and the richer forms that a value offers or `display` is given.

const { inspect, types } = builtin('util');

// The names under which libraries for notebooks offer their forms.
const OFFERED = [
  ['text/html', ['_toHtml', 'toHtml', 'toHTML']],
  ['image/svg+xml', ['_toSvg', 'toSvg', 'toSVG']],
  ['image/png', ['_toPng', 'toPng']],
  ['image/jpeg', ['_toJpeg', 'toJpeg']],
  ['text/markdown', ['_toMarkdown', 'toMarkdown']],
];
const SHORT = {
  html: 'text/html', svg: 'image/svg+xml', markdown: 'text/markdown', latex: 'text/latex', javascript: 'text/javascript', text: 'text/plain',
  png: 'image/png', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp', pdf: 'application/pdf', json: 'application/json', vega: 'application/vnd.vega.v5+json',
};
const FILES = { image: 'image/png', audio: 'audio/wav', video: 'video/mp4' };

function textOf(value) {
  try {
    return inspect(value, { maxStringLength: typeof value === 'string' ? Infinity : 10000 });
  } catch (error) {
    return `[a value that cannot be shown: ${reasonOf(error)}]`;
  }
}

function reasonOf(error) {
  try {
    return String(error);
  } catch {
    return 'its error cannot be shown either';
  }
}

// A MIME bundle for a value that offers one, otherwise null. Proxies are not asked: they may answer to every name.
async function formsOf(value) {
  if (value === null || typeof value !== 'object' && typeof value !== 'function' || types.isProxy(value)) return null;
  const data = {};
  try {
    const whole = value[Symbol.for('Jupyter.display')] ?? value._toMime ?? value.toMimeBundle;
    if (typeof whole === 'function') {
      for (const [type, content] of Object.entries((await whole.call(value)) ?? {})) data[type] = contentOf(type, content);
    }
    for (const [type, names] of OFFERED) {
      const name = names.find((one) => typeof value[one] === 'function');
      if (name === undefined || type in data) continue;
      const content = await value[name]();
      if (typeof content === 'string' || ArrayBuffer.isView(content)) data[type] = contentOf(type, content);
    }
  } catch (error) {
    print('stderr', `a value could not be shown in full: ${reasonOf(error)}\n`);
  }
  if (Object.keys(data).length === 0) return null;
  return { 'text/plain': textOf(value), ...data };
}

function contentOf(type, content) {
  if (content instanceof ArrayBuffer) content = new Uint8Array(content);
  if (ArrayBuffer.isView(content)) {
    const bytes = Buffer.from(content.buffer, content.byteOffset, content.byteLength);
    return isText(type) ? bytes.toString('utf8') : bytes.toString('base64');
  }
  if (type === 'application/json' || type.endsWith('+json')) return content === undefined ? null : JSON.parse(json(content) ?? 'null');
  return typeof content === 'string' ? content : String(content);
}

function isText(type) {
  return type.startsWith('text/') || type === 'image/svg+xml' || type === 'application/javascript' || type === 'application/json' || type.endsWith('+json');
}

// `display('<b>x</b>')`, `display({html})`, `display({image, mimeType})`, `display({type, data})`, `display({'text/html': ...})`, or any value.
function display(value, options) {
  const identity = options?.id ?? options?.display_id;
  show(value, identity, options?.update === true);
  if (identity === undefined) return undefined;
  return { id: identity, update: (next) => show(next, identity, true) };
}

function show(value, identity, update) {
  const frame = { data: null, metadata: {} };
  if (identity !== undefined) frame.transient = { display_id: String(identity) };
  if (update) frame.update = true;
  frame.data = givenForms(value);
  if (frame.data !== null) return sendJson('display', frame);
  // What a value offers may be made by promises; whoever awaits nothing still sees it in time, before the cell is over.
  const shown = formsOf(value).then((data) => {
    frame.data = data ?? { 'text/plain': textOf(value) };
    sendJson('display', frame);
  });
  unshown.add(shown);
  shown.finally(() => unshown.delete(shown));
}

const unshown = new Set();

function givenForms(value) {
  if (typeof value === 'string') return { 'text/html': value };
  if (value === null || typeof value !== 'object' || types.isProxy(value)) return { 'text/plain': textOf(value) };
  const data = {};
  if (typeof value.type === 'string' && value.type.includes('/') && 'data' in value) data[value.type] = contentOf(value.type, value.data);
  for (const [name, content] of Object.entries(value)) {
    if (content === undefined || content === null && name !== 'json') continue;
    if (Object.hasOwn(SHORT, name)) data[SHORT[name]] = contentOf(SHORT[name], content);
    else if (Object.hasOwn(FILES, name)) {
      const type = typeof value.mimeType === 'string' ? value.mimeType : FILES[name];
      data[type] = contentOf(type, content);
    } else if (/^(text|image|audio|video|application)\/[\w.+-]+$/.test(name)) data[name] = contentOf(name, content);
  }
  return Object.keys(data).length > 0 ? data : null;
}

display.clear = () => send('clear', '');
for (const name of [...Object.keys(SHORT), ...Object.keys(FILES)]) {
  display[name] = (content, mimeType) => display({ [name]: content, mimeType });
}
Object.defineProperty(globalThis, 'display', { value: display, writable: true, configurable: true, enumerable: false });

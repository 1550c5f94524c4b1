// What could stand at the cursor: names of the global scope, or properties of what stands before the dot.
// The part before the dot is evaluated only if V8 can do so without side effects.

const WORDS = ['async', 'await', 'break', 'case', 'catch', 'class', 'const', 'continue', 'default', 'delete', 'else', 'export', 'extends', 'false', 'finally', 'for', 'function', 'if', 'import', 'instanceof', 'let', 'new', 'null', 'return', 'super', 'switch', 'this', 'throw', 'true', 'try', 'typeof', 'undefined', 'var', 'void', 'while', 'yield'];

function complete(code, cursor) {
  const signs = Array.from(code);
  const before = signs.slice(0, cursor).join('');
  const found = /((?:[\p{ID_Start}$_][\p{ID_Continue}$]*|\]|\)|"|'|`)?(?:\s*(?:\?\.|\.)\s*))?([\p{ID_Start}$_][\p{ID_Continue}$]*)?$/u.exec(before);
  const start = found[2] ?? '';
  let names = [];
  if (found[1]) names = propertiesOf(objectBefore(before.slice(0, before.length - start.length).replace(/\s*\??\.\s*$/, '')));
  else if (!/[.\d]$/.test(before.slice(0, before.length - start.length))) names = globalNames();
  const matches = [...new Set(names)].filter((name) => name.startsWith(start) && name !== '__soma__' && /^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(name)).sort();
  const end = Math.min(cursor, signs.length);
  sendJson('completions', { matches: matches.slice(0, 1000), start: end - Array.from(start).length, end });
}

// The longest chain of names, indexes and calls' ends that stands at the end of the text.
function objectBefore(text) {
  const found = /(?:[\p{ID_Start}$_][\p{ID_Continue}$]*|"[^"\n]*"|'[^'\n]*'|\[[^[\]\n]*\])(?:\s*\??\.\s*#?[\p{ID_Start}$_][\p{ID_Continue}$]*|\[(?:\d+|"[^"\n]*"|'[^'\n]*')\])*$/u.exec(text);
  return found === null ? null : found[0];
}

function propertiesOf(expression) {
  if (expression === null) return [];
  const names = [];
  let found = null;
  ask('Runtime.evaluate', { expression: `(${expression})`, throwOnSideEffect: true, silent: true, objectGroup: 'complete', timeout: 200 }, (_, answer) => {
    found = answer?.exceptionDetails ? null : answer?.result;
  });
  if (found === null || found === undefined) return names;
  let holder = found.objectId;
  if (holder === undefined) {
    const type = { string: 'String', number: 'Number', boolean: 'Boolean', bigint: 'BigInt', symbol: 'Symbol' }[found.type];
    return type === undefined ? names : Object.getOwnPropertyNames(globalThis[type].prototype);
  }
  ask('Runtime.getProperties', { objectId: holder, ownProperties: false, generatePreview: false }, (_, answer) => {
    for (const { name } of answer?.result ?? []) names.push(name);
  });
  ask('Runtime.releaseObjectGroup', { objectGroup: 'complete' });
  return names;
}

function globalNames() {
  const names = [...WORDS];
  ask('Runtime.globalLexicalScopeNames', {}, (_, answer) => names.push(...(answer?.names ?? [])));
  for (let holder = globalThis; holder !== null; holder = Object.getPrototypeOf(holder)) names.push(...Object.getOwnPropertyNames(holder));
  return names;
}

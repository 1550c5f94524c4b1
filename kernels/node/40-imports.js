// Cells are scripts, and scripts have no import declarations: they are rewritten to `const ... = await import(...)`.
// Needs no parser, but has to know what is a string, a comment, a template or a regular expression.

const BEFORE_EXPRESSION = new Set(['return', 'typeof', 'case', 'in', 'of', 'delete', 'void', 'throw', 'new', 'else', 'do', 'instanceof', 'yield', 'await', 'default', 'extends']);

function rewriteImports(code, checked) {
  if (!code.includes('import')) return code;
  const found = [];
  const tokens = tokensOf(code);
  let depth = 0;
  for (let at = 0; at < tokens.length; at++) {
    const { text } = tokens[at];
    if (text === '{' || text === '(' || text === '[' || text === '${') depth += 1;
    else if (text === '}' || text === ')' || text === ']') depth -= 1;
    if (text !== 'import' || tokens[at].kind !== 'word' || (at > 0 && (tokens[at - 1].text === '.' || tokens[at - 1].text === '?.'))) continue;
    const next = tokens[at + 1]?.text;
    if (next === '(') found.push({ start: tokens[at].start, end: tokens[at].end, text: '__soma__.load' });
    else if (next === '.' && tokens[at + 2]?.text === 'meta') found.push({ start: tokens[at].start, end: tokens[at + 2].end, text: '__soma__.meta()' });
    else if (depth === 0) {
      const declaration = readDeclaration(code, tokens, at, checked);
      if (declaration !== null) {
        found.push(declaration);
        at = declaration.last;
      }
    }
  }
  let result = '';
  let copied = 0;
  for (const { start, end, text } of found) {
    result += code.slice(copied, start) + text + '\n'.repeat(code.slice(start, end).split('\n').length - 1);
    copied = end;
  }
  return result + code.slice(copied);
}

// From `import` to the end of the declaration, or null where it is none (V8 then says what is wrong).
function readDeclaration(code, tokens, at, checked) {
  const start = tokens[at].start;
  const names = [];
  const wanted = [];
  let whole = null;
  let here = at + 1;
  const text = () => tokens[here]?.text;
  const isName = () => tokens[here]?.kind === 'word';
  if (tokens[here]?.kind !== 'string') {
    for (;;) {
      if (text() === '*') {
        if (tokens[here + 1]?.text !== 'as' || tokens[here + 2]?.kind !== 'word') return null;
        whole = tokens[here + 2].text;
        here += 3;
      } else if (text() === '{') {
        here += 1;
        while (text() !== '}') {
          const exported = tokens[here];
          if (exported?.kind !== 'word' && exported?.kind !== 'string') return null;
          here += 1;
          let local = exported.text;
          if (text() === 'as') {
            local = tokens[here + 1]?.text;
            here += 2;
          }
          names.push(`${exported.text}: ${local}`);
          wanted.push(exported.kind === 'string' ? exported.text : `'${exported.text}'`);
          if (text() === ',') here += 1;
          else if (text() !== '}') return null;
        }
        here += 1;
      } else if (isName()) {
        names.push(`default: ${text()}`);
        wanted.push("'default'");
        here += 1;
      } else return null;
      if (text() !== ',') break;
      here += 1;
    }
    if (text() !== 'from') return null;
    here += 1;
  }
  if (tokens[here]?.kind !== 'string') return null;
  const name = tokens[here].text;
  let last = here;
  let options = '';
  const attributes = tokens[here + 1]?.text;
  if ((attributes === 'with' || attributes === 'assert') && tokens[here + 2]?.text === '{') {
    last = here + 2;
    while (tokens[last] !== undefined && tokens[last].text !== '}') last += 1;
    if (tokens[last] === undefined) return null;
    const body = code.slice(tokens[here + 2].start, tokens[last].end).replace(/\n/g, ' ');
    options = `, {with: ${body}, assert: ${body}}`;
  }
  const end = tokens[last].end;
  const value = `await __soma__.bring(${name}, [${checked ? wanted.join(', ') : ''}]${options})`;
  let made = value;
  if (whole !== null) made = `const ${whole} = ${value}` + (names.length > 0 ? `, {${names.join(', ')}} = ${whole}` : '');
  else if (names.length > 0) made = `const {${names.join(', ')}} = ${value}`;
  return { start, end, text: `${made};`, last };
}

function tokensOf(code) {
  const tokens = [];
  const templates = [];
  const add = (kind, start, end) => tokens.push({ kind, start, end, text: code.slice(start, end) });
  const word = /[\p{ID_Start}$_\\#][\p{ID_Continue}$\u200c\u200d\\]*/uy;
  const number = /(?:\d|\.\d)[\w.]*/y;
  const regular = /\/(?![*/])(?:\[(?:\\.|[^\]\\\n])*\]|\\.|[^/\\[\n])+\/\w*/y;
  const match = (pattern, at) => {
    pattern.lastIndex = at;
    return pattern.test(code) ? pattern.lastIndex : -1;
  };
  let at = code.startsWith('#!') ? lineEnd(code, 0) : 0;
  while (at < code.length) {
    const sign = code[at];
    let end;
    if (/\s/.test(sign)) at += 1;
    else if (sign === '/' && code[at + 1] === '/') at = lineEnd(code, at);
    else if (sign === '/' && code[at + 1] === '*') {
      end = code.indexOf('*/', at + 2);
      at = end < 0 ? code.length : end + 2;
    } else if (sign === '"' || sign === "'") {
      end = quoteEnd(code, at, sign);
      add('string', at, end);
      at = end;
    } else if (sign === '`' || (sign === '}' && templates.length > 0 && templates[templates.length - 1] === 0)) {
      if (sign === '}') {
        templates.pop();
        add('sign', at, at + 1);
      }
      end = templateEnd(code, at + 1);
      if (code[end - 1] === '{') {
        templates.push(0);
        add('sign', end - 2, end);
      } else add('template', at, end);
      at = end;
    } else if ((end = match(word, at)) > 0) {
      add('word', at, end);
      at = end;
    } else if ((end = match(number, at)) > 0) {
      add('number', at, end);
      at = end;
    } else if (sign === '/' && regularAllowed(tokens[tokens.length - 1]) && (end = match(regular, at)) > 0) {
      add('regular', at, end);
      at = end;
    } else {
      if (templates.length > 0 && sign === '{') templates[templates.length - 1] += 1;
      if (templates.length > 0 && sign === '}') templates[templates.length - 1] -= 1;
      const length = sign === '?' && code[at + 1] === '.' ? 2 : code.startsWith('...', at) ? 3 : 1;
      add('sign', at, at + length);
      at += length;
    }
  }
  return tokens;
}

function regularAllowed(before) {
  if (before === undefined) return true;
  if (before.kind === 'word') return BEFORE_EXPRESSION.has(before.text);
  return before.kind === 'sign' && before.text !== ')' && before.text !== ']';
}

function lineEnd(code, at) {
  const end = code.indexOf('\n', at);
  return end < 0 ? code.length : end;
}

function quoteEnd(code, at, quote) {
  for (at += 1; at < code.length && code[at] !== quote && code[at] !== '\n'; at++) if (code[at] === '\\') at += 1;
  return Math.min(at + 1, code.length);
}

// Up to and with the closing sign, or the `${` that opens an expression.
function templateEnd(code, at) {
  for (; at < code.length && code[at] !== '`'; at++) {
    if (code[at] === '\\') at += 1;
    else if (code[at] === '$' && code[at + 1] === '{') return at + 2;
  }
  return Math.min(at + 1, code.length);
}

// Errors as people read them: name, message and a stack in which this program does not appear.

// From the inspector on, everything that called is ours; above it, single frames may be (`display`, `input`).
function withoutOurs(text) {
  const kept = [];
  let below = false;
  for (const line of text.split('\n')) {
    const frame = /^\s+at /.test(line);
    if (!frame) below = false;
    else if (line.includes('(node:inspector:')) below = true;
    if (!below && !(frame && line.includes('soma:kernel'))) kept.push(line);
    // The properties of an error begin at the end of its stack's last line.
    else if (line.endsWith(' {') && kept.length > 0) kept[kept.length - 1] += ' {';
  }
  return kept.join('\n');
}

function describe(error) {
  try {
    if (types.isNativeError(error) || error instanceof Error) {
      const name = typeof error.name === 'string' && error.name !== '' ? error.name : 'Error';
      return { name, value: String(error.message), traceback: withoutOurs(inspect(error)) };
    }
    const text = typeof error === 'string' ? error : textOf(error);
    return { name: 'Uncaught', value: text, traceback: `Uncaught ${textOf(error)}` };
  } catch (problem) {
    return { name: 'Error', value: `an error that cannot be shown: ${reasonOf(problem)}`, traceback: '' };
  }
}

// V8 knows the place of a syntax error, but writes it into no stack.
function describeSyntax(error, details, code, cell) {
  const described = describe(error);
  const line = details.lineNumber ?? 0;
  const column = details.columnNumber ?? 0;
  const source = (code.split('\n')[line] ?? '').replace(/\r$/, '');
  const shown = source.length > 500 ? '' : `${source}\n${source.slice(0, column).replace(/[^\t]/g, ' ')}^\n\n`;
  described.traceback = `<cell-${cell}>:${line + 1}\n${shown}${described.name}: ${described.value}`;
  return described;
}

function reportBackground(what, error) {
  const { traceback } = describe(error);
  print('stderr', `${what} ${traceback.replace(/^Uncaught /, '')}\n`);
}

process.on('uncaughtException', (error) => reportBackground('Uncaught', error));
process.on('unhandledRejection', (error) => reportBackground('Uncaught (in promise)', error));

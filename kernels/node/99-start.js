// Says `ready` and serves what the guest asks until it closes the pipe.

function handleFrame(words, payload) {
  if (words[0] === 'execute') execute(words, payload);
  else if (words[0] === 'complete') complete(payload.toString(), Number(words[1]));
  else if (words[0] === 'input' || words[0] === 'refuse') answered(words[0], payload);
}

const requests = new (builtin('net').Socket)({ fd: 3, readable: true, writable: false });
requests.on('data', (chunk) => received(chunk, handleFrame));
requests.on('error', () => process.exit());
requests.on('close', () => process.exit());
requests.on('end', () => process.exit());

sendJson('ready', { language: 'javascript', version: process.versions.node, flavour: 'plain' });
//# sourceURL=soma:kernel

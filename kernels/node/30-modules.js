// `require` and `import` as they would be in a file of the working directory, wherever that is at the moment.

const loaders = new Map();

function loader() {
  const folder = workingFolder();
  let found = loaders.get(folder);
  if (found === undefined) {
    const Module = builtin('module');
    const file = builtin('path').join(folder, 'cell.js');
    // A module that is compiled under this name, but is in no file: both ways of loading start from its folder.
    const module = new Module(file);
    module.filename = file;
    module.paths = Module._nodeModulePaths(folder);
    module._compile('exports.load = (name, options) => import(name, options)', file);
    found = { require: Module.createRequire(file), load: module.exports.load, file };
    loaders.set(folder, found);
  }
  return found;
}

// A folder that was removed has no name any more.
function workingFolder() {
  try {
    return process.cwd();
  } catch {
    return '/';
  }
}

lazilyEachTime('require', () => loader().require);

function lazilyEachTime(name, get) {
  Object.defineProperty(globalThis, name, {
    configurable: true,
    enumerable: false,
    get,
    set(value) {
      Object.defineProperty(globalThis, name, { value, configurable: true, enumerable: true, writable: true });
    },
  });
}

// For `import(...)` and for what 40-imports.js makes of import declarations.
function load(name, options) {
  return options === undefined ? loader().load(String(name)) : loader().load(String(name), options);
}

async function bring(name, wanted, options) {
  const module = await load(name, options);
  for (const one of wanted) {
    if (!(one in module)) throw new SyntaxError(`The requested module '${name}' does not provide an export named '${one}'`);
  }
  return module;
}

function meta() {
  const { pathToFileURL } = builtin('url');
  const { file, require: here } = loader();
  return {
    __proto__: null,
    dirname: workingFolder(),
    filename: file,
    url: pathToFileURL(file).href,
    resolve: (name) => {
      const found = here.resolve(name);
      return builtin('path').isAbsolute(found) ? pathToFileURL(found).href : found;
    },
  };
}

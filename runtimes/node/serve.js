// SPDX-License-Identifier: Apache-2.0
// One request, from its environment to its answer. Goes behind encode.js in one text.

// --- where modules come from -----------------------------------------------------------------------------------------

// files, existing or not, whose folders are looked in: the working directory's, then the requirement set's
let bases = [];
let userRequire = null;

function environment(request) {
  for (const name of Object.keys(process.env)) delete process.env[name];
  for (const [name, value] of Object.entries(request.env ?? {})) process.env[name] = value;
  if (request.cwd) process.chdir(request.cwd);
  const here = process.cwd();
  bases = [path.join(here, 'tool.js')];
  if (request.site) {
    const modules = [
      request.site, path.join(request.site, 'npm', 'node_modules'), path.join(request.site, 'node_modules'),
    ]
      .find((one) => path.basename(one) === 'node_modules' && fs.existsSync(one));
    if (modules) {
      bases.push(path.join(path.dirname(modules), 'tool.js'));
      process.env.NODE_PATH = [modules, process.env.NODE_PATH].filter(Boolean).join(':');
      process.env.PATH = `${path.join(modules, '.bin')}:${process.env.PATH ?? '/usr/local/bin:/usr/bin:/bin'}`;
    }
  }
  if (process.env.NODE_PATH) Module._initPaths();
  userRequire = Module.createRequire(bases[0]);
}

const MISSING = ['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND', 'ERR_PACKAGE_PATH_NOT_EXPORTED'];
const missing = (error) => MISSING.includes(error?.code);

// import() as if it stood in one of the bases. Nodes before 20.12 have no loader for that; there import.meta.resolve()
// takes a parent (a flag of the command line), and finds what import finds: require() does not see packages that are
// modules only.
const defaultLoader = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER;
let resolver = null;

function importer(base) {
  if (defaultLoader) {
    const how = { filename: base, importModuleDynamically: defaultLoader };
    return vm.compileFunction('return import(what)', ['what'], how);
  }
  return async (what) => {
    resolver ??= (await import('data:text/javascript,export default import.meta.resolve')).default;
    return import(await resolver(what, url.pathToFileURL(base).href));
  };
}

async function load(what) {
  for (const [index, base] of bases.entries()) {
    try {
      return await importer(base)(what);
    } catch (error) {
      if (index + 1 === bases.length || !missing(error)) throw error;
    }
  }
}

async function link(what) {
  const found = await load(what);
  return new vm.SyntheticModule(Object.keys(found), function () {
    for (const name of Object.keys(found)) this.setExport(name, found[name]);
  }, { identifier: what });
}

// --- TypeScript ------------------------------------------------------------------------------------------------------

let sourceMap = null; // of what was compiled: lines in tracebacks are the user's

class TypeScriptError extends Error {
  get name() { return 'TypeScriptError'; }
}

function esbuild(source) {
  const places = bases.slice(1).map((base) => path.join(path.dirname(base), 'node_modules', '.bin', 'esbuild'))
    .concat('/usr/bin/esbuild', '/usr/local/bin/esbuild');
  const program = places.find((place) => fs.existsSync(place));
  if (!program) {
    throw new TypeScriptError(`Node ${process.version} cannot strip types (22.13 and later can), `
      + 'and there is no esbuild in this template');
  }
  const options = [
    '--loader=ts', '--sourcemap=inline', '--sources-content=false', '--target=es2022', '--log-level=error',
  ];
  const done = require('child_process').spawnSync(program, options,
    { input: source, encoding: 'utf8', maxBuffer: 64 << 20 });
  if (done.status !== 0) throw new SyntaxError(`esbuild: ${(done.stderr || String(done.error)).trim()}`);
  const [code, map] = done.stdout.split('//# sourceMappingURL=data:application/json;base64,');
  if (map) sourceMap = new Module.SourceMap(parse(bufferFrom(map.trim(), 'base64').toString()));
  return code;
}

function stripTypes(source) {
  if (typeof Module.stripTypeScriptTypes !== 'function') return esbuild(source);
  try {
    return Module.stripTypeScriptTypes(source);
  } catch (error) {
    if (error.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') throw error;
    return Module.stripTypeScriptTypes(source, { mode: 'transform' }); // enums and the like
  }
}

// --- user code -------------------------------------------------------------------------------------------------------

const ESM = /^\s*(?:import\s*(?:[\w$*{]|["'])|export\s)/m;
const FUNCTIONS = new RegExp('^(?:export\\s+)?(?:default\\s+)?(?:(?:async\\s+)?function\\s*\\*?\\s*([A-Za-z_$][\\w$]*)'
  + '|(?:const|let|var)\\s+([A-Za-z_$][\\w$]*)\\s*(?::[^=]*)?=\\s*(?:async\\s*)?'
  + '(?:function\\b|\\(|[A-Za-z_$][\\w$]*\\s*=>))', 'gm');

// V8 says where a syntax error is only for scripts; and the line we put behind the source must not be blamed.
function misspelt(error, source, filename) {
  if (!(error instanceof SyntaxError)) return error;
  const plain = source.replace(/^(\s*)export(\s+default)?(?=\s)/gm, (all) => all.replace(/\S/g, ' '))
    .replace(/^(\s*)import\b(?=[^(.])/gm, '$1//    ');
  try {
    vm.compileFunction(plain, [], { filename });
  } catch (sync) {
    try {
      new vm.Script(`(async () => {${plain}\n})`, { filename });
    } catch {
      return sync;
    }
  }
  return error;
}

// Runs it and gives what `pick` (an expression, evaluated at its end) is. A module if it looks like one, else a script
// as CommonJS has it, else a module after all (await).
async function evaluate(source, filename, pick) {
  const dynamic = (what) => load(what);
  const esm = async () => {
    const module = new vm.SourceTextModule(`${source}\nexport const __brig_picked__ = ${pick};`, {
      identifier: filename,
      importModuleDynamically: dynamic,
      initializeImportMeta(meta) {
        const dirname = path.dirname(bases[0]);
        Object.assign(meta, { url: url.pathToFileURL(bases[0]).href, filename: bases[0], dirname });
      },
    });
    await module.link(link);
    await module.evaluate();
    return module.namespace.__brig_picked__ ?? module.namespace.default;
  };
  const asModule = async () => {
    globalThis.require = userRequire;
    try {
      return await esm();
    } catch (error) {
      throw misspelt(error, source, filename);
    }
  };
  if (ESM.test(source)) return asModule();
  let run;
  try {
    const given = ['exports', 'require', 'module', '__filename', '__dirname'];
    run = vm.compileFunction(`${source}\nreturn ${pick};`, given, { filename, importModuleDynamically: dynamic });
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return asModule(); // `await` at top level
  }
  const module = { exports: {} };
  const picked = run.call(module.exports, module.exports, userRequire, module, bases[0], path.dirname(bases[0]));
  return picked ?? (typeof module.exports === 'function' ? module.exports
    : Object.values(module.exports).filter((one) => typeof one === 'function').pop());
}

class NoFunctionError extends Error {
  get name() { return 'NoFunctionError'; }
}

// Required parameters in the schema's order, then its others, then the rest; one that is not given holds its place.
function positional(fn, args, schema) {
  const shape = Function.prototype.toString.call(fn);
  if (/^(?:async\s+)?(?:function\s*\*?\s*[\w$]*\s*)?\(\s*\{/.test(shape)) return [args]; // f({a, b}): one object
  const parameters = schema?.parameters ?? schema;
  let order = [];
  if (parameters?.properties) {
    const required = parameters.required ?? [];
    order = [...required, ...Object.keys(parameters.properties).filter((name) => !required.includes(name))];
  } else {
    const head = /^(?:async\s+)?(?:function\s*\*?\s*[\w$]*\s*)?\(([^()]*)\)/.exec(shape)?.[1]
      ?? /^(?:async\s+)?([\w$]+)\s*=>/.exec(shape)?.[1] ?? '';
    order = head.split(',').map((one) => one.split('=')[0].trim()).filter((one) => /^[\w$]+$/.test(one));
  }
  order.push(...Object.keys(args).filter((name) => !order.includes(name)));
  const values = order.map((name) => (Object.hasOwn(args, name) ? args[name] : undefined));
  while (values.length && values[values.length - 1] === undefined) values.pop();
  return values;
}

async function client() {
  if (!process.env.LETTA_API_KEY) return null;
  try {
    const found = await load('@letta-ai/letta-client');
    return found.LettaClient ? new found.LettaClient({ token: process.env.LETTA_API_KEY })
      : new (found.Letta ?? found.default)({ apiKey: process.env.LETTA_API_KEY });
  } catch {
    return null;
  }
}

async function runTool(request, source, filename) {
  globalThis.client = await client();
  const names = [...source.matchAll(FUNCTIONS)].map((hit) => hit[1] ?? hit[2]);
  const last = names[names.length - 1];
  const wanted = [request.name, last].filter((name) => name && /^[A-Za-z_$][\w$]*$/.test(name))
    .map((name) => `typeof ${name} === 'function' ? ${name} : `).join('');
  const fn = await evaluate(source, filename, `${wanted}undefined`);
  if (typeof fn !== 'function') throw new NoFunctionError('No functions found in source code');
  return fn(...positional(fn, request.args ?? {}, request.schema));
}

class CommandError extends Error {
  get name() { return 'CommandError'; }
}

function runCommand(request) {
  const argv = request.command ?? parse(request.source || '[]');
  const folder = fs.mkdtempSync(path.join(require('os').tmpdir(), 'result-'));
  const place = path.join(folder, 'r');
  const result = fs.openSync(place, 'w+');
  fs.rmSync(folder, { recursive: true });
  const done = require('child_process').spawnSync(argv[0], argv.slice(1),
    {
      input: stringify(request.args ?? {}), stdio: ['pipe', 'inherit', 'inherit', 'ignore', result],
      env: { ...process.env, BRIG_RESULT: '4' },
    });
  if (done.error && done.error.code !== 'EPIPE') throw done.error; // EPIPE: it did not read its arguments
  if (done.status !== 0) {
    const number = require('os').constants.signals[done.signal];
    const error = new CommandError(`${argv[0]}: ${done.signal ? `signal ${number}` : `exit status ${done.status}`}`);
    error.exitCode = done.status ?? 128 + number;
    throw error;
  }
  const size = fs.fstatSync(result).size;
  const most = request.result_max || 16 << 20;
  if (size > most) throw new ResultTooLarge(`the result is larger than the ${most} bytes that are allowed`);
  const data = bufferAlloc(size);
  readSync(result, data, 0, size, 0);
  const text = data.toString();
  try {
    return text.trim() ? parse(text) : null;
  } catch {
    return text;
  }
}

// --- errors, files, the answer ---------------------------------------------------------------------------------------

function userLines(text, filename) {
  const own = /^\s+at .*(\[eval\]|evalmachine|node:)|^\s+at async (?:Promise|file:)/;
  return text.split('\n').filter((line) => !own.test(line)).map((line) => {
    const at = line.lastIndexOf(`${filename}:`);
    const hit = at >= 0 && sourceMap ? /^:(\d+)(?::(\d+))?/.exec(line.slice(at + filename.length)) : null;
    if (!hit) return line;
    const entry = sourceMap.findEntry(hit[1] - 1, (hit[2] ?? 1) - 1);
    if (entry.originalLine === undefined) return line;
    const column = hit[2] ? `:${entry.originalColumn + 1}` : '';
    const rest = line.slice(at + filename.length + hit[0].length);
    return `${line.slice(0, at)}${filename}:${entry.originalLine + 1}${column}${rest}`;
  }).join('\n');
}

function described(thrown, filename) {
  if (!(thrown instanceof Error) && !(typeof thrown?.stack === 'string' && typeof thrown?.message === 'string')) {
    let text;
    try {
      text = typeof thrown === 'object' && thrown !== null ? stringify(thrown) : String(thrown);
    } catch {
      text = '<String() failed>';
    }
    return { type: 'Error', message: text ?? '', traceback: `Uncaught ${text}\n` };
  }
  try {
    const stack = userLines(String(thrown.stack), filename);
    const name = filename.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
    const line = thrown instanceof SyntaxError ? new RegExp(`^${name}:(\\d+)\n`).exec(stack) : null;
    const message = String(thrown.message) + (line ? ` (${filename}, line ${line[1]})` : '');
    return { type: String(thrown.name), message, traceback: `${stack}\n` };
  } catch {
    return { type: 'Error', message: '<String() failed>', traceback: '' };
  }
}

function putFiles(files) {
  for (const { path: place, base64 } of files) {
    fs.mkdirSync(path.dirname(place), { recursive: true });
    fs.writeFileSync(place, bufferFrom(base64 ?? '', 'base64'));
  }
}

function getFiles(places) {
  let room = 32 << 20;
  return places.map((place) => {
    try {
      if (fs.statSync(place).size > room) return { path: place, error: 'too large' };
      const data = fs.readFileSync(place);
      room -= data.length;
      return { path: place, base64: data.toString('base64') };
    } catch (error) {
      return { path: place, error: error.message };
    }
  });
}

// Whether /workspace/out is not there, or empty: the service need not look.
const { readdirSync } = fs;
function nothingLeft() {
  try {
    return readdirSync('/workspace/out').length === 0;
  } catch {
    return true;
  }
}

function finisher(request, filename) {
  const answer = answerer(request);
  const { kind, collect } = request;
  const limit = request.result_max || 16 << 20;
  const withExit = kind === 'code' || kind === 'command';
  let over = false;
  return (result, error, code = 0) => {
    if (over) return;
    const notes = [];
    let text = 'null';
    let type = kindOf(result);
    if (!error) {
      try {
        text = encoder(limit, notes)(result);
      } catch (thrown) {
        error = described(thrown, filename);
      }
    }
    over = true;
    if (error) {
      text = 'null';
      type = 'null';
      code = code || 1;
      if (error.traceback) {
        try {
          writeSync(2, error.traceback);
        } catch {
          // the tool has closed it
        }
      }
      error = { type: error.type, message: error.message.slice(0, 65536), traceback: error.traceback.slice(-262144) };
    }
    answer(`{"status":"${error ? 'error' : 'ok'}","result":${text},"result_type":${quote(type)}`
      + (error ? `,"error":{"type":${quote(error.type)},"message":${quote(error.message)}`
        + `,"traceback":${quote(error.traceback)}}` : '')
      + (collect?.length ? `,"files":${stringify(getFiles(collect))}` : '')
      + (nothingLeft() ? ',"out":false' : '')
      + (notes.length ? `,"notes":${stringify(notes)}` : '')
      + (withExit ? `,"exit_code":${code}` : '') + '}');
  };
}

async function serve(request) {
  const { kind } = request;
  const filename = kind === 'code' ? '<code>' : `<tool ${request.name || 'source'}>`;
  const finish = finisher(request, filename);
  const fail = (thrown) => finish(null, described(thrown, filename), thrown?.exitCode);
  process.reallyExit = (code) => {
    finish(null, code ? { type: 'SystemExit', message: String(code), traceback: '' } : null, code);
  };
  process.on('uncaughtException', fail);
  let drained = false; // process.exit() comes to reallyExit(); the end of the event loop does not
  process.on('beforeExit', () => { drained = true; });
  process.on('exit', (code) => {
    if (!drained) return;
    if (kind === 'code') process.reallyExit(code);
    fail(new Error("the tool's promise was never settled"));
  });
  delete process._eval;
  process.execArgv = [];
  process.argv = [process.argv[0], filename];
  try {
    environment(request);
    if (request.files) putFiles(request.files);
    let source = request.source ?? '';
    if (kind === 'command') return finish(runCommand(request));
    if (kind === 'schema') throw new TypeError('TypeScript tools require an explicit json_schema parameter.');
    if (request.language === 'typescript') source = stripTypes(source);
    if (kind === 'tool') return finish(await runTool(request, source, filename));
    await evaluate(source, filename, 'undefined'); // a snippet ends when its event loop is empty: 'exit'
  } catch (thrown) {
    fail(thrown);
  }
}

// Whatever Node makes at first use is made before anybody waits for it.
async function warm() {
  environment({ env: {}, cwd: null });
  await evaluate('export function warm(a) { return a; }', '<warm>', 'warm');
  const fn = await evaluate('function warm(a) { return a; }', '<warm>', 'warm');
  if (!defaultLoader) await load('fs');
  createHmac('sha256', 'warm').update('').digest('hex');
  encoder(1000, [])({ a: [positional(fn, { a: 1 }, null)] });
  finisher({ kind: 'tool', key: '00' }, '<warm>');
  nothingLeft(); // what it throws and catches is made of much that is made at first use
  void process.stdout.writable;
  void process.stderr.writable;
}

warm().then(() => {
  send(bufferFrom(stringify({ ready: 1, language: 'node', version: process.versions.node, pid: process.pid }), 'utf8'));
  return serve(parse(read(read(4).readUInt32LE(0)).toString('utf8')));
});

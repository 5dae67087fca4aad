import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { test } from 'node:test';
import { circlesOf } from './circles.ts';
import { constructorParameters, readSource } from './source.ts';

/**
 * The table of allowed imports. A new folder or dependency needs a line here. Of the packages in `types`, only types
 * are imported: the value is passed in from outside.
 */
interface Layer {
  readonly folders: readonly string[];
  readonly node: boolean;
  readonly packages: readonly string[];
  readonly types?: readonly string[];
}

const LAYERS: Readonly<Record<string, Layer>> = {
  base: { folders: [], node: false, packages: [] },
  wire: { folders: ['base'], node: false, packages: [] },
  platform: { folders: [], node: true, packages: ['@node-rs/crc32', 'saxes', 'undici'] },
  world: { folders: ['base'], node: true, packages: [] },
  lease: { folders: ['base', 'wire'], node: false, packages: [] },
  replica: { folders: ['base', 'wire'], node: false, packages: [] },
  catalog: { folders: ['base', 'wire'], node: false, packages: [], types: ['better-sqlite3'] },
  server: {
    folders: ['base', 'wire', 'platform', 'world', 'lease', 'replica', 'catalog'],
    node: true,
    packages: [
      '@fastify/busboy',
      '@fastify/compress',
      '@prometheus-io/client',
      'ajv',
      'better-sqlite3',
      'fastify',
      'pino',
      'smol-toml',
      'ws',
    ],
  },
  client: {
    folders: ['base', 'wire', 'platform', 'world'],
    node: true,
    packages: ['@grpc/grpc-js', '@grpc/proto-loader', '@peculiar/x509', 'commander', 'reflect-metadata'],
  },
  fuse: { folders: ['base', 'wire', 'world', 'client'], node: true, packages: ['fuse-native'] },
  model: { folders: [], node: true, packages: [] },
};

/** Tests and measurements may import everything. */
const FREE = ['test', 'bench'];

/** A core depends on its events only: no clock, random numbers, timers or process. */
const CORES = ['base', 'wire', 'lease', 'replica', 'catalog'];

const WORLD = [
  'Math.random',
  'Date',
  'performance',
  'setTimeout',
  'setInterval',
  'setImmediate',
  'queueMicrotask',
  'process',
  'crypto',
  'fetch',
  'console',
  'globalThis',
];

/** Clocks, timers and random numbers of the system, and callbacks of the garbage collector. */
const SYSTEM_WORLD = [
  'Math.random',
  'Date.now',
  'performance',
  'monitorEventLoopDelay',
  'setTimeout',
  'setInterval',
  'setImmediate',
  'AbortSignal.timeout',
  'process.hrtime',
  'process.uptime',
  'uptime',
  'crypto',
  'randomBytes',
  'randomFill',
  'randomFillSync',
  'randomInt',
  'randomUUID',
  'getRandomValues',
  'globalThis',
  'WeakRef',
  'FinalizationRegistry',
];
const SYSTEM_WORLD_MODULES = ['node:timers', 'node:timers/promises'];

/** Code that is given a `World`, so that a simulation can run it. */
const GIVEN_WORLD = ['client', 'fuse', 'server'];

/** Programs, which pass the `World` in: only they import `world/`. A path that ends with a slash is a folder. */
const PROGRAMS: Readonly<Record<string, string>> = {
  'client/bench/': 'measures the real system',
  'client/certificates/': 'tools of the command line, with files',
  'client/commands/': 'the command line',
  'client/csi/driver.ts': 'the CSI driver, with mounts of a container',
  'client/demo/': 'real servers, which it kills',
  'client/dev/': 'processes of real servers',
  'client/doctor/': 'examines the real system',
  'client/lease/supervisor.ts': 'a process of its own, which watches a real command',
  'client/mounts/mount-log.ts': 'files of the process of a mount',
  'client/mounts/mount-process.ts': 'starts the process of a mount',
  'client/terminal/output.ts': 'the terminal',
  'client/terminal/signals.ts': 'the terminal',
  'client/mounts/run-program.ts': 'bounds programs of the system',
  'client/mounts/unmount.ts': 'ends the process of a mount',
  'client/transfer/atomic-file.ts': 'files that commands write',
  'fuse/main.ts': 'the process of a mount',
  'fuse/kernel/reader-thread.ts': 'the thread that reads /dev/fuse',
  'server/main.ts': 'the process of a server',
};

/** Other files that use the system's clocks or timers, and why. */
const OF_SYSTEM: Readonly<Record<string, string>> = {
  // A clock that all processes of one boot share: processes of a server that follow each other compare readings.
  'server/storage/named-clock.ts': 'process.hrtime',
};

/** Sockets, processes and threads of the system. */
const SYSTEM_PARTS =
  /^node:(?:net|tls|https?|http2|dns|dgram|child_process|worker_threads|cluster|zlib)$|\/platform\/(?:undici|node-http)\.ts$/;

/** Folders that use them only below an interface. */
const SEAMED = ['client', 'fuse'];

/** Files that use them, below the interfaces that a simulation implements itself: `ServerChannel` and `Transport`. */
const SYSTEM_EDGES: Readonly<Record<string, string>> = {
  'client/s3/s3-client.ts': 'the sockets to a store of S3',
  'client/transport/direct-http.ts': 'the sockets of a ServerChannel',
  'client/csi/launcher.ts': 'asked by the CSI driver to start a mount',
  'client/csi/mounter.ts': 'asks the launcher of mounts',
  'client/lease/supervised-command.ts': 'a command under a lease',
  'client/transport/loopback.ts': 'distinguishes addresses from host names',
  'client/mounts/mount-control.ts': 'asks the process of a mount',
  'client/transport/revoked-servers.ts': 'the sockets of a ServerChannel',
  'client/mounts/run-program.ts': 'programs of the system',
  'client/transport/socket-channel.ts': 'the sockets of a ServerChannel',
  'client/transport/traffic.ts': 'the sockets of a ServerChannel',
  'fuse/control-socket.ts': 'the process of a mount',
  'fuse/kernel/': 'the real kernel',
  'fuse/transport/mount-guard.ts': 'the real kernel',
};

const ROOT = resolve(import.meta.dirname, '../..');
const FILES = [...Object.keys(LAYERS), ...FREE].flatMap((folder) =>
  globSync(`${folder}/**/*.ts`, { cwd: ROOT, exclude: ['**/node_modules/**'] }).map((path) => ({
    folder,
    path,
    ...readSource(readFileSync(join(ROOT, path), 'utf8')),
  })),
);

/** `smol-toml` of `smol-toml/parse`, `@fastify/x` of `@fastify/x/y`. */
function packageOf(specifier: string): string {
  return specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
}

/** @returns violations by the imports of a file */
function importFaults(
  path: string,
  folder: string,
  imports: ReturnType<typeof readSource>['imports'],
): string[] {
  const layer = LAYERS[folder];
  return imports.flatMap(({ specifier, typeOnly }) => {
    if (specifier.startsWith('.')) {
      if (!/\.(?:ts|js)$/.test(specifier)) return [`${specifier}: a local import ends in .ts`];
      const [target = ''] = relative(ROOT, resolve(ROOT, dirname(path), specifier)).split('/');
      if (layer === undefined || target === folder || layer.folders.includes(target)) return [];
      return [`${specifier}: ${folder}/ does not import ${target}/`];
    }
    if (layer === undefined) return [];
    if (specifier.startsWith('node:')) return layer.node ? [] : [`${specifier}: ${folder}/ is free of Node`];
    const name = packageOf(specifier);
    if (layer.packages.includes(name) || (typeOnly && layer.types?.includes(name))) return [];
    return [`${specifier}: ${folder}/ does not import this package`];
  });
}

/** @returns uses of clocks, random numbers, timers or the process in the code of a core */
function worldFaults(code: string): string[] {
  return WORLD.filter((name) =>
    new RegExp(`(?<![\\w$.#])${name.replace('.', '\\s*\\.\\s*')}\\b(?!\\s*\\??:)`).test(code),
  );
}

/** @returns whether a table of files and folders contains the file */
function isAmong(table: Readonly<Record<string, string>>, path: string): boolean {
  return Object.keys(table).some((at) => (at.endsWith('/') ? path.startsWith(at) : path === at));
}

/**
 * @returns uses of the system's clocks and timers in code that is given a `World`; a program at `path` may import
 * `world/`
 */
function systemWorldFaults(
  path: string,
  { code, imports }: Pick<ReturnType<typeof readSource>, 'code' | 'imports'>,
): string[] {
  return [
    ...SYSTEM_WORLD.filter(
      (name) =>
        OF_SYSTEM[path] !== name &&
        new RegExp(`(?<![\\w$.#])${name.replace('.', '\\s*\\.\\s*')}\\b(?!\\s*\\??:)`).test(code),
    ),
    ...(/\bnew\s+Date\s*(?:\(\s*\)|[^\s(])/.test(code) ? ['new Date()'] : []),
    ...imports
      .map(({ specifier }) => specifier)
      .filter(
        (specifier) =>
          SYSTEM_WORLD_MODULES.includes(specifier) ||
          (!isAmong(PROGRAMS, path) && specifier.includes('../world/')),
      ),
  ];
}

/** @returns constructs that Node cannot erase, or that the project's rules forbid */
function styleFaults({ code, codeAndComments }: { code: string; codeAndComments: string }): string[] {
  const faults: string[] = [];
  const forbid = (fault: string, found: boolean): void => {
    if (found) faults.push(fault);
  };
  forbid('an enum', /^\s*(?:export\s+)?(?:declare\s+)?(?:const\s+)?enum\s+\w/m.test(code));
  forbid('a namespace', /^\s*(?:export\s+)?(?:declare\s+)?(?:namespace|module)\s+\w+\s*\{/m.test(code));
  forbid('a default export', /\bexport\s+default\b|\bas\s+default\b/.test(code));
  forbid('the type any', /(?<![\w$.#])any\b(?!\s*[(:])/.test(code));
  forbid('an empty catch', /\bcatch\s*(?:\([^)]*\)\s*)?\{\s*\}/.test(codeAndComments));
  const parameterProperty = /(?:^|,)\s*(?:(?:public|private|protected|readonly|override)\s+)+\w+\s*[?:]/;
  forbid(
    'a parameter property',
    constructorParameters(code).some((text) => parameterProperty.test(text)),
  );
  return faults;
}

test('the checked folders have files with imports', () => {
  assert.ok(FILES.length > 20);
  for (const folder of ['base', 'lease', 'replica', 'server']) {
    assert.ok(
      FILES.some((file) => file.folder === folder && file.imports.length > 0),
      `${folder}/ has files with imports`,
    );
  }
});

test('each folder imports what the table allows', () => {
  const faults = FILES.flatMap(({ path, folder, imports }) =>
    importFaults(path, folder, imports).map((fault) => `${path}: ${fault}`),
  );
  assert.deepEqual(faults, []);
});

test('every local import names an existing file', () => {
  const missing = FILES.flatMap(({ path, imports }) =>
    imports
      .filter(({ specifier }) => specifier.startsWith('.'))
      .filter(({ specifier }) => !existsSync(resolve(ROOT, dirname(path), specifier)))
      .map(({ specifier }) => `${path}: ${specifier}`),
  );
  assert.deepEqual(missing, []);
});

test('no file imports itself through other files, not even for a type', () => {
  const imports = FILES.filter(({ folder }) => folder !== 'test').map(
    ({ path, imports }) =>
      [
        path,
        imports
          .filter(({ specifier }) => specifier.startsWith('.'))
          .map(({ specifier }) => relative(ROOT, resolve(ROOT, dirname(path), specifier))),
      ] as const,
  );
  assert.deepEqual(circlesOf(new Map(imports)), []);
});

test('no two folders of a layer import each other, not even through other folders or for a type', () => {
  const folderOf = (path: string): string => path.split('/').slice(0, 2).join('/');
  const imports = new Map<string, string[]>();
  for (const { path, folder, imports: all } of FILES) {
    const from = folderOf(path);
    if (FREE.includes(folder) || from.endsWith('.ts')) continue;
    const targets = all
      .filter(({ specifier }) => specifier.startsWith('.'))
      .map(({ specifier }) => folderOf(relative(ROOT, resolve(ROOT, dirname(path), specifier))))
      .filter((target) => target !== from);
    imports.set(from, [...(imports.get(from) ?? []), ...targets]);
  }
  assert.ok(imports.size > 30, `${imports.size} folders`);
  assert.deepEqual(circlesOf(imports), []);
});

test('no two files of a layer have the same name', () => {
  const product = FILES.filter(({ folder }) => !FREE.includes(folder));
  const names = Map.groupBy(product, ({ path, folder }) => `${folder}: ${basename(path)}`);
  const repeated = [...names].filter(([, files]) => files.length > 1).map(([name]) => name);
  assert.deepEqual(repeated, []);
});

test('the lease driver cannot write: it does not import storage', () => {
  const driver = FILES.find(({ path }) => path === 'server/drivers/lease-driver.ts');
  const storage = driver?.imports.filter(({ specifier }) => specifier.includes('storage'));
  assert.deepEqual(storage, []);
});

test("the client's programs load no schemas, which only servers check", () => {
  const byPath = new Map(FILES.map((file) => [file.path, file]));
  for (const main of ['client/main.ts', 'fuse/main.ts']) {
    const loaded = new Set([main]);
    for (const path of loaded) {
      for (const { specifier, typeOnly } of byPath.get(path)?.imports ?? []) {
        if (typeOnly || !specifier.startsWith('.')) continue;
        const target = relative(ROOT, resolve(ROOT, dirname(path), specifier));
        assert.notEqual(target, 'wire/schema.ts', `${path}, which ${main} loads`);
        loaded.add(target);
      }
    }
    assert.ok(loaded.size > 50, `${main} loads ${loaded.size} files`);
  }
});

test('values of node:http come from platform/: importing node:http makes Node load its own undici', () => {
  const faults = FILES.filter(({ folder }) => !FREE.includes(folder)).flatMap(({ path, imports }) =>
    imports.filter(({ specifier, typeOnly }) => specifier === 'node:http' && !typeOnly).map(() => path),
  );
  assert.deepEqual(faults, []);
});

test('bytes become text in one module: another decoder would drop U+FEFF, or write U+FFFD for invalid UTF-8', () => {
  const faults = FILES.filter(({ folder }) => !FREE.includes(folder)).flatMap(({ path, code }) =>
    path !== 'base/utf8.ts' && /\bTextDecoder\b/.test(code) ? [path] : [],
  );
  assert.deepEqual(faults, []);
});

test('the dashboard imports its own modules and the chart library, and sends requests to servers only', () => {
  const modules = globSync('web/*.js', { cwd: ROOT });
  assert.ok(modules.length > 5);
  const faults = modules.flatMap((path) => {
    const text = readFileSync(join(ROOT, path), 'utf8');
    const foreign = readSource(text)
      .imports.map(({ specifier }) => specifier)
      .filter((specifier) => specifier !== './uplot.js' && !existsSync(resolve(ROOT, 'web', specifier)));
    const addresses = [...text.matchAll(/https?:\/\/(?!www\.w3\.org\/2000\/svg)[^\s'"`]+/g)].map(
      ([address]) => address,
    );
    return [...foreign, ...addresses].map((fault) => `${path}: ${fault}`);
  });
  assert.deepEqual(faults, []);
});

test('cores use no clock, random numbers, timers or process', () => {
  const faults = FILES.filter(({ folder }) => CORES.includes(folder)).flatMap(({ path, code }) =>
    worldFaults(code).map((name) => `${path}: ${name}`),
  );
  assert.deepEqual(faults, []);
});

test('clocks, timers and random numbers come from a World, which only programs take from the system', () => {
  const faults = FILES.filter(({ folder }) => GIVEN_WORLD.includes(folder)).flatMap(({ path, ...source }) =>
    systemWorldFaults(path, source).map((fault) => `${path}: ${fault}`),
  );
  assert.deepEqual(faults, []);
});

test('sockets, processes and threads are used only below the interfaces that a simulation implements itself', () => {
  const edges = { ...PROGRAMS, ...SYSTEM_EDGES };
  const faults = FILES.filter(({ folder, path }) => SEAMED.includes(folder) && !isAmong(edges, path)).flatMap(
    ({ path, imports }) =>
      imports
        .filter(({ specifier, typeOnly }) => !typeOnly && SYSTEM_PARTS.test(specifier))
        .map(({ specifier }) => `${path}: ${specifier}`),
  );
  assert.deepEqual(faults, []);
  for (const edge of Object.keys(edges))
    assert.ok(
      FILES.some(({ path }) => path.startsWith(edge)),
      edge,
    );
});

test('Node can run every file by erasing its types; no default export, no any, no swallowed error', () => {
  const faults = FILES.flatMap(({ path, ...source }) =>
    styleFaults(source).map((fault) => `${path}: ${fault}`),
  );
  assert.deepEqual(faults, []);
});

test('the rules detect what they forbid', () => {
  const source = readSource(
    [
      "import { a } from '../server/config.ts';",
      "import type { Database } from 'better-sqlite3';",
      "import { b } from 'better-sqlite3/deep';",
      "export * from 'node:fs';",
      "const later = import('../fuse/mount.ts');",
      "// import { c } from '../client/comment.ts'; performance.now()",
      'const text = "import x from \'ws\'; performance.now(), any";',
      'const hole = `$' + '{Date.now()} setTimeout`;',
      'const pattern = /any\'"performance/.source;',
    ].join('\n'),
  );
  assert.deepEqual(importFaults('catalog/x.ts', 'catalog', source.imports), [
    '../server/config.ts: catalog/ does not import server/',
    'better-sqlite3/deep: catalog/ does not import this package',
    'node:fs: catalog/ is free of Node',
    '../fuse/mount.ts: catalog/ does not import fuse/',
  ]);
  assert.deepEqual(worldFaults(source.code), ['Date'], 'Only inside the placeholder of a template');
  assert.deepEqual(styleFaults(source), []);
  assert.deepEqual(worldFaults('this.Date = x.process; const o = { process: 1 };'), []);
  assert.deepEqual(worldFaults('Math . random(); process.exit(); performance.now()'), [
    'Math.random',
    'performance',
    'process',
  ]);
  const clocks = readSource(
    [
      "import { setTimeout as delay } from 'node:timers/promises';",
      "import { systemWorld } from '../world/system-world.ts';",
      'const a = new Date(b.wallMs()); socket.setTimeout(1); this.#world.randomBytes(8); x.performance.now();',
      'const c = new Date(); const d = Date.now(); crypto.randomUUID();',
    ].join('\n'),
  );
  const library = ['Date.now', 'setTimeout', 'crypto', 'new Date()', 'node:timers/promises'];
  assert.deepEqual(systemWorldFaults('fuse/main.ts', clocks).toSorted(), library.toSorted());
  assert.deepEqual(
    systemWorldFaults('fuse/mount.ts', clocks).toSorted(),
    [...library, '../world/system-world.ts'].toSorted(),
  );
  const circles = circlesOf(
    new Map([
      ['a', ['b', 'e']],
      ['b', ['c', 'outside']],
      ['c', ['d', 'b']],
      ['d', ['c', 'e']],
      ['e', []],
      ['f', ['f2', 'a']],
      ['f2', ['f']],
    ]),
  );
  assert.deepEqual(circles, [
    ['b', 'c', 'd'],
    ['f', 'f2'],
  ]);
  for (const [code, fault] of [
    ['export enum A { B }', 'an enum'],
    ['const enum A { B }', 'an enum'],
    ['namespace N { }', 'a namespace'],
    ['export default 1;', 'a default export'],
    ['export { a as default };', 'a default export'],
    ['const x: any = 1;', 'the type any'],
    ['f(x as any[]);', 'the type any'],
    ['try { f(); } catch {}', 'an empty catch'],
    ['try { f(); } catch (error) {\n}', 'an empty catch'],
    ['class A { constructor(a: () => void, private readonly b: string) {} }', 'a parameter property'],
  ] as const) {
    assert.deepEqual(styleFaults(readSource(code)), [fault], code);
  }
  assert.deepEqual(
    styleFaults(readSource('class A { constructor(a: readonly string[]) { Promise.any(a); } }')),
    [],
  );
});

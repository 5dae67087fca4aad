/**
 * Builds a package for Debian: servers, mounts and command line with the Node that they need. Needs dpkg-deb and npm,
 * neither root nor a compiler; any machine builds the package of each architecture.
 * npm run package:deb -- [--arch amd64|arm64] [--out FOLDER] [--revision NUMBER] [--compression xz|gzip|none]
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  globSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { ROOT } from '../bundle.ts';

/** Debian's name of an architecture, and Node's. */
const ARCHITECTURES = { amd64: 'x64', arm64: 'arm64' } as const;
type Architecture = keyof typeof ARCHITECTURES;

const FILES = join(ROOT, 'packaging/deb/debian');
const HOME = 'usr/lib/leasehold';
const DOCUMENTS = 'usr/share/doc/leasehold';
const SCRIPTS = ['postinst', 'prerm', 'postrm'];
const CONFFILES = ['/etc/leasehold/server.toml'];
const EXECUTABLE = 0o755;
const PLAIN = 0o644;

/** Folders of npm packages, and files, that no program reads. */
const UNUSED_FOLDERS = [
  'test',
  'tests',
  'docs',
  'doc',
  'example',
  'examples',
  'bench',
  'benchmark',
  'benchmarks',
];
const UNUSED_FILES = /\.(?:map|md|markdown|ts|mts|cts|gyp|gypi|c|cc|cpp|h|yml|yaml|tgz|html)$|^\.|^Makefile$/;
const LICENSE = /^(?:licen[cs]e|copying|notice)/i;

interface Options {
  readonly architecture: Architecture;
  readonly revision: string;
  readonly compression: string;
  readonly out: string;
}

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly license?: string;
  readonly author?: string | { readonly name?: string };
}

function readOptions(): Options {
  const { values } = parseArgs({
    options: {
      arch: { type: 'string', default: process.arch === 'arm64' ? 'arm64' : 'amd64' },
      out: { type: 'string', default: ROOT },
      revision: { type: 'string', default: '1' },
      compression: { type: 'string', default: 'xz' },
    },
  });
  const { arch, out, revision, compression } = values;
  if (!isArchitecture(arch))
    throw new Error(`--arch must be ${Object.keys(ARCHITECTURES).join(' or ')}, not ${arch}`);
  if (!/^[0-9]+$/.test(revision)) throw new Error(`--revision must be a number, not ${revision}`);
  return { architecture: arch, revision, compression, out: resolve(out) };
}

function isArchitecture(text: string): text is Architecture {
  return Object.hasOwn(ARCHITECTURES, text);
}

const options = readOptions();
const manifest = manifestOf(ROOT);
// A tilde sorts before the release that it precedes.
const version = `${manifest.version.replace('-', '~')}-${options.revision}`;
const work = mkdtempSync(join(tmpdir(), 'leasehold-deb-'));
try {
  const root = join(work, 'root');
  addProgram(root);
  addModules(root);
  addSystemFiles(root);
  addDocuments(root);
  setModes(root);
  addControl(root);
  const target = join(options.out, `leasehold_${version}_${options.architecture}.deb`);
  mkdirSync(options.out, { recursive: true });
  const flags = ['--root-owner-group', `-Z${options.compression}`, '--build', root, target];
  execFileSync('dpkg-deb', flags, {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, ...epoch() },
  });
  process.stdout.write(`${target}\n`);
} finally {
  rmSync(work, { recursive: true, force: true });
}

/** Compiled JavaScript. */
function addProgram(root: string): void {
  execFileSync(process.execPath, [join(ROOT, 'packaging/build.ts'), join(root, HOME)], { stdio: 'inherit' });
}

/** Packages of npm by the lockfile, for the package's architecture, and Node. */
function addModules(root: string): void {
  const folder = join(work, 'modules');
  mkdirSync(folder);
  for (const name of ['package.json', 'package-lock.json', '.npmrc'])
    copyFileSync(join(ROOT, name), join(folder, name));
  const cpu = ARCHITECTURES[options.architecture];
  const target = ['--os=linux', `--cpu=${cpu}`, '--libc=glibc'];
  execFileSync('npm', ['ci', '--omit=dev', '--prefer-offline', '--loglevel=error', ...target], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const modules = join(folder, 'node_modules');
  const node = join(modules, `node-linux-${cpu}`);
  const home = join(root, HOME);
  renameSync(join(node, 'bin/node'), join(home, 'bin/node'));
  put(root, `${DOCUMENTS}/NODE-LICENSE.gz`, gzip(readFileSync(join(node, 'LICENSE'))));
  for (const one of readdirSync(modules)) {
    if (one.startsWith('.') || one.startsWith('node-linux-')) rmSync(join(modules, one), { recursive: true });
  }
  for (const one of packagesIn(modules)) prune(one, cpu);
  removeEmptyFolders(modules);
  cpSync(modules, join(home, 'node_modules'), { recursive: true });
}

/** Folders of all packages, scoped and nested ones included. */
function packagesIn(modules: string): string[] {
  return globSync(['*/package.json', '@*/*/package.json', '**/node_modules/*/package.json'], { cwd: modules })
    .map((path) => join(modules, dirname(path)))
    .sort();
}

/** Removes what no program reads, above all sources and binaries of other platforms. */
function prune(folder: string, cpu: string): void {
  const hidden = readdirSync(folder).filter((name) => name.startsWith('.'));
  for (const name of [...UNUSED_FOLDERS, ...hidden])
    rmSync(join(folder, name), { recursive: true, force: true });
  if (existsSync(join(folder, 'prebuilds'))) {
    for (const name of ['deps', 'src']) rmSync(join(folder, name), { recursive: true, force: true });
  }
  for (const path of filesIn(folder)) {
    const full = join(folder, path);
    const name = basename(path);
    const isForeign = path.endsWith('.node') && !isOfPlatform(path, cpu);
    if (isForeign || (UNUSED_FILES.test(name) && !LICENSE.test(name))) rmSync(full);
  }
}

/** Paths of all files, hidden ones included. */
function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => lstatSync(join(folder, path)).isFile())
    .sort();
}

function removeEmptyFolders(folder: string): void {
  for (const one of readdirSync(folder, { withFileTypes: true })) {
    if (!one.isDirectory()) continue;
    const inner = join(folder, one.name);
    removeEmptyFolders(inner);
    if (readdirSync(inner).length === 0) rmSync(inner, { recursive: true });
  }
}

/** Whether Node 24 with glibc on this architecture can load a module, by the naming rules of prebuilds. */
function isOfPlatform(path: string, cpu: string): boolean {
  const abi = /\.abi(\d+)\./.exec(path)?.[1];
  const isAbi = abi === undefined || abi === process.versions.modules;
  return path.includes(`linux-${cpu}`) && !path.includes('musl') && isAbi;
}

function addSystemFiles(root: string): void {
  putFile(root, 'usr/bin/leasehold', join(FILES, 'leasehold'));
  putFile(root, 'usr/sbin/mount.leasehold', join(FILES, 'mount.leasehold'));
  symlinkSync('mount.leasehold', join(root, 'usr/sbin/mount.fuse.leasehold'));
  const units = join(ROOT, 'packaging/systemd');
  for (const unit of readdirSync(units).filter((name) => name.endsWith('.service')))
    putFile(root, `lib/systemd/system/${unit}`, join(units, unit));
  putFile(root, 'usr/lib/sysusers.d/leasehold.conf', join(units, 'leasehold.sysusers.conf'));
  putFile(root, 'usr/lib/tmpfiles.d/leasehold.conf', join(FILES, 'leasehold.tmpfiles.conf'));
  putFile(root, 'etc/leasehold/server.toml', join(FILES, 'server.toml'));
}

function addDocuments(root: string): void {
  const printed = (...words: string[]) =>
    execFileSync(process.execPath, [join(root, HOME, 'bin/leasehold.js'), ...words], {
      env: { ...process.env, NODE_DISABLE_COMPILE_CACHE: '1' },
    });
  const manual = printed('man');
  put(root, 'usr/share/man/man1/leasehold.1.gz', gzip(manual));
  const helper = '.so man1/leasehold.1\n';
  put(root, 'usr/share/man/man8/mount.leasehold.8.gz', gzip(Buffer.from(helper)));
  put(root, 'usr/share/man/man8/mount.fuse.leasehold.8.gz', gzip(Buffer.from(helper)));
  put(root, 'usr/share/bash-completion/completions/leasehold', printed('completion', 'bash'));
  put(root, `${DOCUMENTS}/changelog.gz`, gzip(readFileSync(join(ROOT, 'CHANGELOG.md'))));
  put(root, `${DOCUMENTS}/changelog.Debian.gz`, gzip(Buffer.from(debianChangelog())));
  put(root, `${DOCUMENTS}/copyright`, Buffer.from(copyright(join(root, HOME, 'node_modules'))));
  putFile(root, `${DOCUMENTS}/examples/mount-main.env`, join(FILES, 'mount-main.env'));
  cpSync(join(ROOT, 'docs/examples/leases'), join(root, DOCUMENTS, 'examples/leases'), { recursive: true });
  putFile(root, 'usr/share/lintian/overrides/leasehold', join(FILES, 'lintian-overrides'));
}

function debianChangelog(): string {
  const at = new Date(Number(epoch().SOURCE_DATE_EPOCH) * 1000).toUTCString().replace('GMT', '+0000');
  return [
    `leasehold (${version}) unstable; urgency=medium`,
    `  * Release ${manifest.version}: see changelog.gz.`,
    ` -- ${maintainer()}  ${at}\n`,
  ].join('\n\n');
}

function maintainer(): string {
  const [, name = ''] = /^Maintainer: (.+)$/m.exec(readFileSync(join(FILES, 'control'), 'utf8')) ?? [];
  return name;
}

/** One stanza for each package of npm. */
function copyright(modules: string): string {
  const text = readFileSync(join(ROOT, 'LICENSE'), 'utf8');
  const [, holder = ''] = /^Copyright \(c\) (.+)$/m.exec(text) ?? [];
  const body = text.slice(text.indexOf('Permission')).trimEnd();
  const stanzas = packagesIn(modules).map((folder) => {
    const { name, license = 'unknown', author = `authors of ${name}` } = manifestOf(folder);
    const by = typeof author === 'string' ? author : (author.name ?? `authors of ${name}`);
    const files = `${HOME}/node_modules/${folder.slice(modules.length + 1)}/*`;
    const id = license.replace(/[^A-Za-z0-9.+-]+/g, '-').replace(/^-|-$/g, '');
    const where = license.includes('Apache-2.0')
      ? ' On Debian systems, the text is also in /usr/share/common-licenses/Apache-2.0.\n'
      : '';
    const text = ` The license ${license}; its text is in the folder of the package.\n${where}`;
    return `Files: ${files}\nCopyright: ${by}\nLicense: npm-${id}\n${text}\n`;
  });
  const indented = body
    .split('\n')
    .map((line) => ` ${line === '' ? '.' : line}`)
    .join('\n');
  return readFileSync(join(FILES, 'copyright'), 'utf8')
    .replace('@COPYRIGHT@', () => holder)
    .replace('@PACKAGES@', () => stanzas.join(''))
    .replace('@LICENSE@', () => indented);
}

/** Those of npm packages are arbitrary. */
function setModes(root: string): void {
  const programs = new Set([`${HOME}/bin/node`, 'usr/bin/leasehold', 'usr/sbin/mount.leasehold']);
  for (const path of ['.', ...readdirSync(root, { recursive: true, encoding: 'utf8' })]) {
    const full = join(root, path);
    const found = lstatSync(full);
    if (found.isSymbolicLink()) continue;
    chmodSync(full, found.isDirectory() || programs.has(path) ? EXECUTABLE : PLAIN);
  }
}

function addControl(root: string): void {
  const files = globSync('**/*', { cwd: root }).filter((path) => lstatSync(join(root, path)).isFile());
  const sums = files.sort().map(
    (path) =>
      `${createHash('md5')
        .update(readFileSync(join(root, path)))
        .digest('hex')}  ${path}\n`,
  );
  const bytes = files.reduce((sum, path) => sum + lstatSync(join(root, path)).size, 0);
  const control = readFileSync(join(FILES, 'control'), 'utf8')
    .replace('@VERSION@', version)
    .replace('@ARCHITECTURE@', options.architecture)
    .replace('@INSTALLED_SIZE@', `${Math.ceil(bytes / 1024)}`);
  put(root, 'DEBIAN/control', Buffer.from(control));
  put(root, 'DEBIAN/md5sums', Buffer.from(sums.filter((line) => !line.includes('  etc/')).join('')));
  put(root, 'DEBIAN/conffiles', Buffer.from(CONFFILES.map((path) => `${path}\n`).join('')));
  for (const script of SCRIPTS) {
    putFile(root, `DEBIAN/${script}`, join(FILES, script));
    chmodSync(join(root, 'DEBIAN', script), EXECUTABLE);
  }
}

/** The time of the commit, so that two builds of it are equal. */
function epoch(): { readonly SOURCE_DATE_EPOCH: string } {
  const given = process.env.SOURCE_DATE_EPOCH;
  if (given !== undefined) return { SOURCE_DATE_EPOCH: given };
  const printed = execFileSync('git', ['log', '-1', '--format=%ct'], { cwd: ROOT, encoding: 'utf8' });
  return { SOURCE_DATE_EPOCH: printed.trim() };
}

function manifestOf(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Manifest;
}

/** As `gzip -9n`: without a name and a time. */
function gzip(bytes: Uint8Array): Buffer {
  return gzipSync(bytes, { level: 9 });
}

function put(root: string, path: string, bytes: Uint8Array): void {
  const full = join(root, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, bytes, { mode: PLAIN });
}

function putFile(root: string, path: string, source: string): void {
  put(root, path, readFileSync(source));
}

import { constants } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { DEVICE, deviceObstacle } from '../mounts/fuse-device.ts';
import { isMountDaemon, processes, volumeMounts } from '../mounts/mount-table.ts';
import { isStopped } from '../mounts/process-state.ts';
import { run } from '../mounts/run-program.ts';
import { isSystemError } from '../terminal/failure.ts';
import { formatBytes } from '../terminal/quantities.ts';
import { type Finding, failed, ok, warning } from './finding.ts';

const NODE_MAJOR = 24;
const OPEN_FILES_MIN = 4096;
const MEMORY_MIN_BYTES = 512 * 1024 ** 2;
const MOUNT_ANSWER_MS = 3_000;
const FUSE_CONFIGURATION = '/etc/fuse.conf';

/** Checks what a mount and a server need of this machine. */
export async function examineMachine(isRoot: boolean): Promise<Finding[]> {
  return [
    examineNode(process.versions.node),
    await examineKernel(),
    await examineDevice(),
    await examineHelper(isRoot),
    await examineLibrary(),
    await examineTransports(isRoot),
    await examineConfiguration(isRoot),
    await examineOpenFiles(),
    await examineMemory(),
    ...(await examineMounts()),
  ];
}

function examineNode(version: string): Finding {
  return Number.parseInt(version, 10) >= NODE_MAJOR
    ? ok('node', `Node ${version}`)
    : failed('node', `Node ${version} is too old`, `install Node ${NODE_MAJOR} or later`);
}

async function examineKernel(): Promise<Finding> {
  const known = await textOf('/proc/filesystems');
  if (known === null) return failed('kernel', 'there is no /proc', 'mounts need Linux');
  return /\bfuse$/m.test(known)
    ? ok('kernel', 'the kernel has FUSE')
    : failed('kernel', 'the kernel has no FUSE', 'load it: modprobe fuse');
}

async function examineDevice(): Promise<Finding> {
  const obstacle = await deviceObstacle();
  return obstacle === null
    ? ok('device', `${DEVICE} can be used`)
    : failed('device', obstacle.what, obstacle.fix);
}

/** Checks fusermount3, with whose privileges users other than root mount. */
async function examineHelper(isRoot: boolean): Promise<Finding> {
  const version = await run('fusermount3', ['--version']);
  if (version.kind === 'missing') {
    return failed('fusermount3', 'the program fusermount3 is missing', 'Debian: apt-get install fuse3');
  }
  if (!isRoot && !(await isSetUserId('fusermount3'))) {
    const fix = 'as root: chmod u+s "$(command -v fusermount3)"';
    return failed('fusermount3', 'fusermount3 does not have the rights of root', fix);
  }
  return ok('fusermount3', version.kind === 'done' ? version.output : 'fusermount3 is there');
}

async function isSetUserId(program: string): Promise<boolean> {
  for (const folder of (process.env.PATH ?? '').split(':')) {
    const stats = await stat(`${folder}/${program}`).catch(nullIfMissing);
    if (stats !== null)
      return (stats.mode & constants.S_IFMT) === constants.S_IFREG && (stats.mode & 0o4000) !== 0;
  }
  return false;
}

async function examineLibrary(): Promise<Finding> {
  let found = await run('ldconfig', ['-p']);
  // It is not in every user's search path.
  if (found.kind === 'missing') found = await run('/sbin/ldconfig', ['-p']);
  if (found.kind !== 'done') {
    return warning('libfuse', 'whether libfuse 3 is installed cannot be found out here', 'try a mount');
  }
  const library = /^\s*(libfuse3\.so\.[34]) .*=> (.*)$/m.exec(found.output);
  return library === null
    ? failed('libfuse', 'the library libfuse 3 is missing', 'Debian: apt-get install fuse3, then npm ci')
    : ok('libfuse', `${library[2]}`);
}

/** Reports the transports of a mount; `kernel` needs root, but neither fusermount3 nor the library. */
async function examineTransports(isRoot: boolean): Promise<Finding> {
  if (!isRoot) return ok('transports', 'native; the transport "kernel" is for root');
  return (await run('mount', ['--version'])).kind === 'missing'
    ? warning('transports', 'native only: the program mount is missing', 'Debian: apt-get install mount')
    : ok('transports', 'kernel and native');
}

/** @returns whether users other than root may let others use their mounts */
export async function othersAllowed(): Promise<boolean> {
  return /^\s*user_allow_other\s*$/m.test((await textOf(FUSE_CONFIGURATION)) ?? '');
}

async function examineConfiguration(isRoot: boolean): Promise<Finding> {
  if (await othersAllowed()) return ok('fuse.conf', 'user_allow_other is set');
  return isRoot
    ? ok('fuse.conf', 'user_allow_other is not set, and root does not need it')
    : warning(
        'fuse.conf',
        'user_allow_other is not set: -o allow_other is for root only',
        `as root: echo user_allow_other >> ${FUSE_CONFIGURATION}`,
      );
}

async function examineOpenFiles(): Promise<Finding> {
  const limits = (await textOf('/proc/self/limits')) ?? '';
  const soft = /^Max open files\s+(\d+|unlimited)/m.exec(limits)?.[1];
  if (soft === undefined) return warning('open files', 'their limit is not known', '');
  if (soft === 'unlimited' || Number(soft) >= OPEN_FILES_MIN) return ok('open files', `up to ${soft}`);
  const fix = `ulimit -n ${OPEN_FILES_MIN}, or LimitNOFILE= in the unit`;
  return warning('open files', `only ${soft} at a time`, fix);
}

/** Checks the memory of the machine, or of its container if that has less. */
async function examineMemory(): Promise<Finding> {
  const group = Number((await textOf('/sys/fs/cgroup/memory.max')) ?? 'max');
  const bytes = Number.isFinite(group) ? Math.min(group, totalmem()) : totalmem();
  return bytes >= MEMORY_MIN_BYTES
    ? ok('memory', formatBytes(bytes))
    : warning(
        'memory',
        `only ${formatBytes(bytes)}`,
        `a server or a mount needs ${formatBytes(MEMORY_MIN_BYTES)}`,
      );
}

async function examineMounts(): Promise<Finding[]> {
  const daemons = (await processes()).filter((entry) => isMountDaemon(entry));
  const mounts = await volumeMounts();
  const findings = await Promise.all(
    mounts.map(({ directory, source }) => {
      const stopped = daemons.find(({ pid, argv }) => argv.at(-1) === directory && isStopped(pid));
      // A request would keep the mount busy for as long as it waits.
      return stopped === undefined ? examineMount(directory, source) : stoppedMount(directory, stopped.pid);
    }),
  );
  for (const { pid, argv } of daemons) {
    const directory = argv.at(-1) as string;
    if (mounts.some((mount) => mount.directory === directory)) continue;
    findings.push(
      warning(
        `mount ${directory}`,
        `process ${pid} serves this mount, which is gone; it may still be storing what was written`,
        `if it stays: kill ${pid}`,
      ),
    );
  }
  return findings.length > 0 ? findings : [ok('mounts', 'no volume is mounted here')];
}

function stoppedMount(directory: string, pid: number): Finding {
  return failed(
    `mount ${directory}`,
    `its process ${pid} is stopped`,
    `kill -CONT ${pid} has it continue; what it has not stored is lost if it is killed`,
  );
}

async function examineMount(directory: string, source: string): Promise<Finding> {
  const name = `mount ${directory}`;
  // A child process asks: a call that hangs must not keep this process from ending.
  const result = await run('stat', ['-f', '-c', '%T', directory], MOUNT_ANSWER_MS);
  if (result.kind === 'done') return ok(name, `${source} answers`);
  const output = result.kind === 'failed' ? result.output : '';
  if (/not connected|connection abort/i.test(output)) {
    return failed(
      name,
      'its process is dead',
      `leasehold mount VOLUME ${directory} replaces it, leasehold umount ${directory} removes it`,
    );
  }
  const fix = `check the cluster with "leasehold status"; leasehold umount --lazy ${directory} removes the mount`;
  return failed(name, `${source} does not answer`, fix);
}

async function textOf(path: string): Promise<string | null> {
  return readFile(path, 'utf8').catch(nullIfMissing);
}

function nullIfMissing(error: unknown): null {
  if (isSystemError(error) && ['ENOENT', 'EACCES', 'ENOTDIR'].includes(error.code ?? '')) return null;
  throw error;
}

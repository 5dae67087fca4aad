/** The parts of the plugin, put together. */
import { resolve } from 'node:path';
import { systemWorld } from '../../world/system-world.ts';
import { isMountDaemon, processes } from '../mounts/mount-table.ts';
import { isAlive } from '../mounts/process-state.ts';
import { programVersion } from '../mounts/programs.ts';
import { usageFailure } from '../terminal/failure.ts';
import { EndSignal } from '../terminal/signals.ts';
import { Cluster, type ClusterOptions } from './cluster-access.ts';
import { Controller } from './controller.ts';
import { CsiServer } from './grpc-server.ts';
import { Identity } from './identity.ts';
import { type Log, startLauncher } from './launcher.ts';
import { LauncherMounter, type Mounter, ProcessMounter, SystemdMounter } from './mounter.ts';
import { Node } from './node.ts';
import { NodeState } from './node-state.ts';
import { Operations } from './operations.ts';
import { socketPath } from './socket-file.ts';

const MOUNT_POLL_MS = 50;

export interface DriverOptions {
  readonly cluster: ClusterOptions;
  readonly endpoint: string;
  readonly mode: 'all' | 'controller' | 'node';
  readonly driverName: string;
  readonly nodeId: string;
  readonly zone: string | null;
  /** Whether nodes and volumes have topologies: all nodes have a zone then. */
  readonly topology: boolean;
  readonly recordsIn: string;
  readonly stateDir: string;
  readonly mounter: 'process' | 'systemd' | 'launcher';
  readonly launcher?: string;
  readonly hostProgram: string;
  readonly hostPid?: number;
  readonly checkIntervalMs: number;
  readonly log: Log;
}

/** Runs the plugin until SIGTERM or SIGINT. Its mounts stay. */
export async function runDriver(options: DriverOptions): Promise<void> {
  const { driverName, recordsIn, mode, log } = options;
  const socket = socketPath(options.endpoint);
  const operations = new Operations();
  const isNode = mode !== 'controller';
  const state = new NodeState(resolve(options.stateDir));
  if (isNode) await state.prepare();
  const cluster = new Cluster(isNode ? await withTokenFile(options.cluster, state) : options.cluster);
  if (options.topology && isNode && options.zone === null)
    throw usageFailure(
      'Cannot report a topology: the node has no zone',
      'give it by --zone, or omit --topology',
    );
  const common = { cluster, operations, driverName, recordsIn, topology: options.topology };
  const controller = mode === 'node' ? null : new Controller(common);
  const node = isNode ? new Node({ ...common, ...nodeParts(options, state) }) : null;
  const identity = new Identity({
    ...{ cluster, driverName },
    version: programVersion(),
    hasController: controller !== null,
    hasTopology: options.topology,
  });
  const server = new CsiServer({ identity, controller, node }, log);
  using ended = new EndSignal();
  await server.listen(socket);
  log('serves calls', { socket, driver: driverName, mode, ...(isNode ? { node: options.nodeId } : {}) });
  const stopRepairs = node === null ? () => undefined : repeatRepairs(node, options);
  await ended.wait();
  log('ends', { signal: ended.signal.reason });
  stopRepairs();
  await server.stop();
  if (isNode && options.mounter === 'process') await endMountsOfContainer(log);
}

/** Runs the launcher until SIGTERM or SIGINT. Its mounts stay, until its container ends. */
export async function runLauncher(endpoint: string, log: Log): Promise<void> {
  const socket = socketPath(endpoint);
  using ended = new EndSignal();
  const server = await startLauncher(socket, new ProcessMounter(), log);
  log('takes orders', { socket });
  await ended.wait();
  log('ends', { signal: ended.signal.reason });
  server.close();
  await endMountsOfContainer(log);
}

/**
 * Ends all mounts in good order, so that they store what was written, if this is the first process of a container: the
 * kernel kills all others of it at once when this one ends. Elsewhere mounts stay.
 */
async function endMountsOfContainer(log: Log): Promise<void> {
  if (process.pid !== 1) return;
  const mounts = (await processes()).filter((entry) => isMountDaemon(entry));
  for (const { pid } of mounts) process.kill(pid, 'SIGTERM');
  log('ends its mounts', { directories: mounts.map(({ argv }) => argv.at(-1)) });
  // They are no children of this process, so there is no event. The container's grace time is the limit.
  while (mounts.some(({ pid }) => isAlive(pid))) await systemWorld.sleep(MOUNT_POLL_MS);
}

function nodeParts(options: DriverOptions, state: NodeState) {
  const { nodeId, zone, topology, log } = options;
  return { nodeId, zone, topology, log, state, mounter: mounterOf(options) };
}

function mounterOf({ mounter, launcher, hostProgram, hostPid, stateDir }: DriverOptions): Mounter {
  switch (mounter) {
    case 'process':
      return new ProcessMounter();
    case 'systemd': {
      const program = hostProgram.split(' ').filter((word) => word !== '');
      if (program.length === 0) throw usageFailure('Cannot mount by systemd: --host-program is empty');
      return new SystemdMounter({ program, hostPid: hostPid ?? null, logs: resolve(stateDir) });
    }
    case 'launcher':
      if (launcher === undefined)
        throw usageFailure('Cannot mount by a launcher: give its socket by --launcher');
      return new LauncherMounter(socketPath(launcher));
  }
}

/** Mounts do not inherit a token of the environment: they are started elsewhere. */
async function withTokenFile(options: ClusterOptions, state: NodeState): Promise<ClusterOptions> {
  const { token, ...access } = options.access;
  if (token === undefined) return options;
  return { ...options, access: { ...access, tokenFile: await state.putToken('', token) } };
}

/** @returns a function that ends the repetition */
function repeatRepairs(node: Node, { cluster, checkIntervalMs, log }: DriverOptions): () => void {
  let running = false;
  const repair = async (): Promise<void> => {
    if (running) return;
    running = true;
    try {
      await node.repair();
    } catch (error) {
      log('cannot search dead mounts', { error: error instanceof Error ? error.message : String(error) });
    } finally {
      running = false;
    }
  };
  void repair();
  const timer = cluster.world.every(checkIntervalMs, () => void repair());
  return () => timer.cancel();
}

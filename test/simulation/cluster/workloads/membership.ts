/**
 * Servers join, are drained, removed and stopped, and lose their disks, one at a time, while programs work. Other
 * workloads judge that acknowledged changes are there, the judge of members that each file has one member set in each
 * view, the judge of convergence that there are enough replicas in the right places. This one judges that `status` is
 * healthy only if the cluster is.
 */
import { ServiceError } from '../../../../base/errors.ts';
import type { ClusterStatus } from '../../../../wire/http-api.ts';
import type { ClientProgram } from '../program.ts';
import type { Run } from '../run.ts';
import type { SimulatedServer } from '../simulated-server.ts';
import type { Workload } from '../workload.ts';
import { CALL, perRun, turns } from './parts.ts';

const SERVERS_MAX = 7;
/** Replicas of files, of the catalog, and of named leases: there are never fewer servers. */
const SERVERS_MIN = 3;
const THINK_MS_MAX = 1_500;
const POLL_MS = 400;
/** A drain that takes longer is cancelled. */
const DRAIN_MS_MAX = 25_000;
/** A server gets an empty disk within this time. */
const AWAY_MS_MAX = 3_000;
const STATUS = { timeoutMs: 4_000 } as const;

interface State {
  /** A change of members is in progress. */
  isBusy: boolean;
  /** Servers that were removed with all they had. */
  readonly removed: Set<string>;
}

const stateOf = perRun((): State => ({ isBusy: false, removed: new Set() }));

type Change = (program: ClientProgram) => Promise<void>;

/** Each entry has the same probability. */
const CHANGES: readonly Change[] = [join, join, drain, drain, drain, loseDisk, loseDisk];

async function turn(program: ClientProgram): Promise<void> {
  const { run, draw } = program;
  const state = stateOf(run);
  if (draw.chance(0.4)) await watchStatus(program);
  if (state.isBusy) return;
  state.isBusy = true;
  // Its program may be killed meanwhile: the next one finds what it has begun.
  program.world.onEndOnce(() => {
    state.isBusy = false;
  });
  await program.attempt('membership', () => draw.pick(CHANGES)(program));
  state.isBusy = false;
}

const present = (run: Run): SimulatedServer[] => run.cluster.servers.filter(({ isRetired }) => !isRetired);

async function join({ run }: ClientProgram): Promise<void> {
  if (present(run).length >= SERVERS_MAX) return;
  const server = run.cluster.add();
  run.cluster.tell(`${server.id} joins`);
  run.count('join');
}

/** Drains a server until it has nothing, removes and stops it; or cancels the drain. */
async function drain({ run, draw, client, world }: ClientProgram): Promise<void> {
  const { servers } = await client.query({ kind: 'servers', counts: false }, CALL);
  const taking = servers.filter(({ state }) => state === 'in');
  const begun = servers.find(({ state }) => state === 'draining');
  if (begun === undefined && taking.length <= SERVERS_MIN) return;
  const { id } = begun ?? draw.pick(taking);
  await client.command({ kind: 'server-state', id, state: 'draining' }, CALL);
  run.cluster.tell(`${id} is drained`);
  run.count('drain');
  const untilMs = world.nowMs() + DRAIN_MS_MAX;
  while (world.nowMs() < untilMs && !run.isEnding) {
    if (await isEmpty(client, id)) {
      if (await remove(run, client, id)) return;
      break;
    }
    await world.sleep(POLL_MS);
  }
  await client.command({ kind: 'server-state', id, state: 'in' }, CALL);
  run.cluster.tell(`${id} is let in again`);
  run.count('undrain');
}

type Client = ClientProgram['client'];

/** Checks as `leasehold server drain` does. */
async function isEmpty(client: Client, id: string): Promise<boolean> {
  const { servers } = await client.query({ kind: 'servers', counts: true }, CALL);
  if ((servers.find((one) => one.id === id)?.replicas ?? 0) > 0) return false;
  const { catalog } = await client.status(CALL);
  if (catalog.members.includes(id)) return false;
  const { view } = await client.query({ kind: 'voters' }, CALL);
  return ![view?.members, view?.joint].some((set) => set?.servers.includes(id));
}

/**
 * @returns false if it is refused: servers of new files were removed shortly before, or the catalog was placed there
 * since
 */
async function remove(run: Run, client: Client, id: string): Promise<boolean> {
  try {
    await client.command({ kind: 'server-remove', id, dead: false }, CALL);
  } catch (error) {
    if (!(error instanceof ServiceError) || error.code !== 'precondition-failed') throw error;
    run.count('remove refused');
    return false;
  }
  const server = run.cluster.servers.find((one) => one.id === id);
  if (server === undefined) return true;
  server.isRetired = true;
  server.kill();
  stateOf(run).removed.add(id);
  run.cluster.tell(`${id} is removed and stopped`);
  run.count('remove');
  return true;
}

/**
 * Replaces the disk of the weak server by an empty one: a majority of each file's replicas keeps its data, however
 * often that happens.
 */
async function loseDisk({ run, draw }: ClientProgram): Promise<void> {
  const { cluster } = run;
  const { weak } = cluster;
  if (cluster.isHealed || weak.isRetired || !weak.runs) return;
  // What it is configured with names the first servers: those may have left.
  weak.loseDisk(cluster.servers.some(({ isRetired }) => isRetired) ? cluster.joining : undefined);
  cluster.tell(`${weak.id} loses its disk`);
  run.count('lose-disk');
  cluster.restartLater(weak, draw.next() * AWAY_MS_MAX);
}

/** A server that was disconnected during a whole `status` query must not be called healthy. */
async function watchStatus(program: ClientProgram): Promise<void> {
  const { run, client } = program;
  const down = present(run).filter((server) => !server.runs);
  const starts = new Map(down.map(({ id, starts }) => [id, starts]));
  const status = await program.attempt('status', () => client.status(STATUS));
  if (status === null) return;
  run.count(`status ${status.verdict}`);
  if (status.verdict !== 'healthy') return;
  const still = down.filter(({ id, starts: now, runs }) => !runs && starts.get(id) === now);
  const listed = still.filter(({ id }) => isIn(status, id));
  for (const { id } of listed) run.violation(`status is healthy, and ${id} does not run`);
}

const isIn = (status: ClusterStatus, server: string): boolean =>
  status.servers.some(({ id, membership }) => id === server && membership !== 'out');

export const membership: Workload = {
  name: 'membership',
  demands: ['join', 'drain', 'undrain', 'remove', 'lose-disk', 'status healthy', 'status degraded'],
  client: turns(THINK_MS_MAX, turn),
  /** Drains in progress are cancelled, so that there are enough servers. */
  async settle(run, client) {
    const { servers } = await client.query({ kind: 'servers', counts: false }, CALL);
    for (const { id, state } of servers) {
      if (state === 'draining') await client.command({ kind: 'server-state', id, state: 'in' }, CALL);
      if (state !== 'out' && stateOf(run).removed.has(id))
        run.violation(`${id} was removed, and is ${state}`);
    }
  },
};

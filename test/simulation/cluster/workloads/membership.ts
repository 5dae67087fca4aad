/**
 * Servers join, are drained, removed and stopped, and lose their disks, one at a time, while programs work. Judged: what
 * was acknowledged is there (by the other workloads), each file has one member set in each view (by the judge of members),
 * enough replicas are where the catalog says (by the judge of convergence), and `status` is healthy only where it is true.
 */
import { ServiceError } from '../../../../base/errors.ts';
import type { ClusterStatus } from '../../../../wire/http-api.ts';
import type { ClientProgram } from '../program.ts';
import type { Run } from '../run.ts';
import type { SimulatedServer } from '../simulated-server.ts';
import type { Workload } from '../workload.ts';
import { CALL, perRun, turns } from './parts.ts';

const SERVERS_MAX = 7;
/** Of files, of the catalog, and of named leases: fewer servers are never left. */
const SERVERS_MIN = 3;
const THINK_MS_MAX = 1_500;
const POLL_MS = 400;
/** A drain that takes longer is taken back. */
const DRAIN_MS_MAX = 25_000;
/** Until a server has an empty disk in the place of a lost one. */
const AWAY_MS_MAX = 3_000;
const STATUS = { timeoutMs: 4_000 } as const;

interface State {
  /** One change of the members is under way. */
  isBusy: boolean;
  /** Removed, with all they had. */
  readonly removed: Set<string>;
}

const stateOf = perRun((): State => ({ isBusy: false, removed: new Set() }));

type Change = (program: ClientProgram) => Promise<void>;

/** A row is as likely as it stands here. */
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

/** Drains a server until it holds nothing, removes and stops it; or lets it in again. */
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

/** As `leasehold server drain` waits for it. */
async function isEmpty(client: Client, id: string): Promise<boolean> {
  const { servers } = await client.query({ kind: 'servers', counts: true }, CALL);
  if ((servers.find((one) => one.id === id)?.replicas ?? 0) > 0) return false;
  const { catalog } = await client.status(CALL);
  if (catalog.members.includes(id)) return false;
  const { view } = await client.query({ kind: 'voters' }, CALL);
  return ![view?.members, view?.joint].some((set) => set?.servers.includes(id));
}

/** @returns false where it is refused: servers of new files were removed shortly before, or the catalog has come to it since */
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
 * The disk of the one server that loses things is replaced by an empty one: of each file a majority of the replicas keeps what
 * it has, however often that happens.
 */
async function loseDisk({ run, draw }: ClientProgram): Promise<void> {
  const { cluster } = run;
  const { weak } = cluster;
  if (cluster.isHealed || weak.isRetired || !weak.runs) return;
  weak.loseDisk();
  cluster.tell(`${weak.id} loses its disk`);
  run.count('lose-disk');
  cluster.restartLater(weak, draw.next() * AWAY_MS_MAX);
}

/** A server that was out of reach all the time while `status` was asked for is not called healthy. */
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
  /** What is still being drained is let in again, so that there are enough servers for all. */
  async settle(run, client) {
    const { servers } = await client.query({ kind: 'servers', counts: false }, CALL);
    for (const { id, state } of servers) {
      if (state === 'draining') await client.command({ kind: 'server-state', id, state: 'in' }, CALL);
      if (state !== 'out' && stateOf(run).removed.has(id))
        run.violation(`${id} was removed, and is ${state}`);
    }
  },
};

import type { LiveFile, LivePart, LiveReplica } from '../../wire/live-api.ts';

/** The last report of a server, its age, and whether the server is reachable. */
export interface ReceivedReport {
  readonly part: LivePart;
  readonly ageMs: number;
  readonly isThere: boolean;
}

type Told = Omit<ReceivedReport, 'part'> & { readonly standing: LiveReplica; readonly server: string };

/** Combines the servers' reports of a file. The primary's counts first; else backups know how long a lease runs. */
export function liveFileOf(path: string, file: number | null, heard: readonly ReceivedReport[]): LiveFile {
  const told: Told[] = heard.flatMap(({ part, ...when }) =>
    part.files
      .filter((standing) => standing.file === file)
      .map((standing) => ({ standing, server: part.server, ...when })),
  );
  const fresh = told.filter(({ isThere }) => isThere);
  const primary = fresh
    .filter(({ standing }) => standing.role === 'primary')
    .reduce<Told | null>(
      (best, one) => (best === null || one.standing.epoch > best.standing.epoch ? one : best),
      null,
    );
  const members = (primary ?? fresh[0] ?? told[0])?.standing.members ?? [];
  const learners = primary?.standing.replicas.filter(({ role }) => role === 'learner') ?? [];
  return {
    path,
    file,
    primary: primary?.server ?? null,
    epoch: Math.max(0, ...told.map(({ standing }) => standing.epoch)),
    lease: primary === null ? longestLease(told) : leaseNow(primary),
    replicas: [...members, ...learners.map(({ server }) => server)].map((server) =>
      replicaOf(
        server,
        primary,
        told.find((one) => one.server === server),
      ),
    ),
  };
}

function leaseNow({ standing, ageMs }: Told): LiveFile['lease'] {
  const remainingMs = Math.round(Math.max(0, standing.lease.remainingMs - ageMs));
  return { holder: remainingMs > 0 ? standing.lease.holder : null, remainingMs };
}

function longestLease(told: readonly Told[]): LiveFile['lease'] {
  return told
    .map(leaseNow)
    .reduce((longest, one) => (one.remainingMs > longest.remainingMs ? one : longest), {
      holder: null,
      remainingMs: 0,
    });
}

function replicaOf(
  server: string,
  primary: Told | null,
  own: Told | undefined,
): LiveFile['replicas'][number] {
  const isFresh = own?.isThere === true;
  const version = own?.standing.version ?? null;
  if (primary?.server === server)
    return { server, role: 'primary', state: 'current', version, lagOperations: 0 };
  const known = primary?.standing.replicas.find((replica) => replica.server === server);
  // A new primary has not yet learned which replicas are unreachable.
  if (known !== undefined && (known.version > 0 || known.state !== 'unreachable')) {
    const { role, state, lagOperations } = known;
    return {
      server,
      role,
      state: isFresh ? state : 'unreachable',
      version: version ?? known.version,
      lagOperations,
    };
  }
  return { server, role: 'backup', state: isFresh ? 'at-rest' : 'unreachable', version, lagOperations: null };
}

import type { LiveFile, LivePart, LiveReplica } from '../../wire/live-api.ts';

/** The last report of a server, its age, and whether the server is reachable. */
export interface ReceivedReport {
  readonly part: LivePart;
  readonly ageMs: number;
  readonly isThere: boolean;
}

type FileReport = Omit<ReceivedReport, 'part'> & { readonly replica: LiveReplica; readonly server: string };

/** Combines the servers' reports of a file: the primary's if there is one, else what backups know of its lease. */
export function liveFileOf(path: string, file: number | null, reports: readonly ReceivedReport[]): LiveFile {
  const fileReports: FileReport[] = reports.flatMap(({ part, ...when }) =>
    part.files
      .filter((replica) => replica.file === file)
      .map((replica) => ({ replica, server: part.server, ...when })),
  );
  const fresh = fileReports.filter(({ isThere }) => isThere);
  const primary = fresh
    .filter(({ replica }) => replica.role === 'primary')
    .reduce<FileReport | null>(
      (best, one) => (best === null || one.replica.epoch > best.replica.epoch ? one : best),
      null,
    );
  const members = (primary ?? fresh[0] ?? fileReports[0])?.replica.members ?? [];
  const learners = primary?.replica.replicas.filter(({ role }) => role === 'learner') ?? [];
  return {
    path,
    file,
    primary: primary?.server ?? null,
    epoch: Math.max(0, ...fileReports.map(({ replica }) => replica.epoch)),
    lease: primary === null ? longestLease(fileReports) : leaseNow(primary),
    replicas: [...members, ...learners.map(({ server }) => server)].map((server) =>
      replicaOf(
        server,
        primary,
        fileReports.find((one) => one.server === server),
      ),
    ),
  };
}

function leaseNow({ replica, ageMs }: FileReport): LiveFile['lease'] {
  const remainingMs = Math.round(Math.max(0, replica.lease.remainingMs - ageMs));
  return { holder: remainingMs > 0 ? replica.lease.holder : null, remainingMs };
}

function longestLease(reports: readonly FileReport[]): LiveFile['lease'] {
  return reports
    .map(leaseNow)
    .reduce((longest, one) => (one.remainingMs > longest.remainingMs ? one : longest), {
      holder: null,
      remainingMs: 0,
    });
}

function replicaOf(
  server: string,
  primary: FileReport | null,
  own: FileReport | undefined,
): LiveFile['replicas'][number] {
  const isFresh = own?.isThere === true;
  const version = own?.replica.version ?? null;
  if (primary?.server === server)
    return { server, role: 'primary', state: 'current', version, lagOperations: 0 };
  const known = primary?.replica.replicas.find((replica) => replica.server === server);
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

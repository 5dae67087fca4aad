import { editDistance } from '../../base/edit-distance.ts';

/** The options of a server, in the order of its help; `config.ts` parses the values. */
export const OPTIONS = [
  {
    name: 'id',
    value: 'ID',
    example: 's1',
    fallback: null,
    help: 'Id of this server, unique in the cluster',
  },
  {
    name: 'peer',
    value: 'ID=HOST:PORT',
    example: 's1=127.0.0.1:7401',
    fallback: null,
    help: 'Address of a server of the cluster; once for each server, this one included',
  },
  {
    name: 'join',
    value: 'URL,URL,...',
    example: 'http://10.0.0.1:7401',
    fallback: null,
    help:
      'Servers of a running cluster that this server joins, instead of ' +
      '--peer; the others learn of it automatically',
  },
  {
    name: 'zone',
    value: 'LABEL',
    example: 'rack-1',
    fallback: 'none: a failure domain of its own',
    help:
      'Failure domain of this server, such as a rack or a room. Replicas ' +
      'of a file go to different zones as far as possible',
  },
  {
    name: 'label',
    value: 'LABEL',
    example: 'ssd',
    fallback: 'what the catalog has, by "leasehold server label"',
    help:
      'Property of this server, such as the kind of its disks, that volumes can require; ' +
      'once for each label',
  },
  {
    name: 'listen',
    value: 'HOST:PORT',
    example: '127.0.0.1:7401',
    fallback: "this server's --peer address",
    help: 'Listen address, for example 0.0.0.0:7401',
  },
  {
    name: 'data',
    value: 'DIR',
    example: '/var/lib/leasehold',
    fallback: null,
    help: 'Data folder of this server; created if missing',
  },
  {
    name: 'cluster',
    value: 'NAME',
    example: 'default',
    fallback: 'default',
    help: 'Name of the cluster; servers and data folders of other clusters are refused',
  },
  {
    name: 'lease',
    value: 'TIME',
    example: '5s',
    fallback: '5s',
    help:
      'Lease duration, at least 10 times the clock skew; the same on all servers. A failed primary is ' +
      'replaced after about this time',
  },
  {
    name: 'named-lease-max',
    value: 'TIME',
    example: '15s',
    fallback: '15s',
    help:
      'Longest named lease, at least 10 times the clock skew; the same on all servers. Also the recovery ' +
      'wait for named leases after a start',
  },
  {
    name: 'lease-algorithm',
    value: 'NAME',
    example: 'flease',
    fallback: 'flease',
    help: 'flease or paxoslease; the same on all servers. flease needs clocks that agree within the clock skew, paxoslease only clocks that run at the same rate',
  },
  {
    name: 'clock-skew',
    value: 'TIME',
    example: '250ms',
    fallback: '250ms',
    help: 'Maximum clock difference between two servers; the same on all servers',
  },
  {
    name: 'catalog-members',
    value: 'ID,ID,...',
    example: 's1,s2,s3',
    fallback: 'all servers, or the first five',
    help: 'Servers that hold the catalog at first; the same on all servers',
  },
  {
    name: 'op-timeout',
    value: 'TIME',
    example: '15s',
    fallback: '15s, or two leases if that is longer',
    help: 'How long one request may take before it fails',
  },
  {
    name: 'catalog-log',
    value: 'SIZE',
    example: '1GiB',
    fallback: '256MiB',
    help: 'How many changes of names to keep at most for servers that were away; after 30 minutes only 16 MiB of them',
  },
  {
    name: 'lease-idle',
    value: 'TIME',
    example: '60s',
    fallback: 'three leases',
    help: 'How long an idle file keeps its primary; a closed and settled one a fifteenth of that',
  },
  {
    name: 'gc-grace',
    value: 'TIME',
    example: '1h',
    fallback: '1h',
    help: 'How long to keep replicas of deleted files, and of files that have moved to other servers',
  },
  {
    name: 'replace-after',
    value: 'TIME',
    example: '1h',
    fallback: '1h',
    help: 'How long a server may be unreachable before its replicas are re-created elsewhere',
  },
  {
    name: 'compare-every',
    value: 'TIME',
    example: '10m',
    fallback: '10m',
    help: 'Interval of anti-entropy with other servers; also runs when a server reconnects',
  },
  {
    name: 'scrub-every',
    value: 'TIME',
    example: '7d',
    fallback: '7d',
    help: 'Pause between two passes of the scrubber',
  },
  {
    name: 'scrub-rate',
    value: 'RATE',
    example: '20MiB/s',
    fallback: '20MiB/s',
    help: 'Maximum read rate of the scrubber',
  },
  {
    name: 'catch-up-rate',
    value: 'RATE',
    example: '200MiB/s',
    fallback: 'no bound',
    help: 'Maximum total rate at which backups catch up; the reset of a new primary is not limited',
  },
  {
    name: 'move-files-rate',
    value: 'NUMBER/s',
    example: '400/s',
    fallback: '400/s',
    help: 'Maximum rate at which a server gets or gives files by drain, repair and rebalance; the same on all servers',
  },
  {
    name: 'move-bytes-rate',
    value: 'RATE',
    example: '100MiB/s',
    fallback: '100MiB/s',
    help: 'The same for the contents of the files',
  },
  {
    name: 'direct-writes',
    value: 'WHEN',
    example: 'auto',
    fallback: 'auto',
    help: 'auto or off: direct I/O for large files, if file system and disk support it',
  },
  {
    name: 'rebuild',
    value: null,
    example: 'true',
    fallback: null,
    help: 'If the data folder is damaged, move its contents aside and re-create all replicas from the other servers',
  },
  {
    name: 'log-level',
    value: 'LEVEL',
    example: 'info',
    fallback: 'info',
    help: 'trace, debug, info, warn, error, fatal or silent; the log goes to standard error as JSON',
  },
  {
    name: 'tls-cert',
    value: 'FILE',
    example: 's1.pem',
    fallback: 'none: no TLS',
    help: 'Certificate of this server, as "leasehold cert create-node" makes it; together with --tls-key and --tls-ca',
  },
  {
    name: 'tls-key',
    value: 'FILE',
    example: 's1-key.pem',
    fallback: null,
    help: 'Private key of --tls-cert',
  },
  {
    name: 'tls-ca',
    value: 'FILE',
    example: 'ca.pem',
    fallback: null,
    help: 'Certificate authorities of servers and clients: one, or two during a change',
  },
  {
    name: 'tokens',
    value: 'FILE',
    example: 'tokens.json',
    fallback: 'none: clients are not authenticated',
    help: 'Tokens of clients, as "leasehold token create" writes them; the same on all servers',
  },
  {
    name: 'client-rate',
    value: 'NUMBER/s',
    example: '2000/s',
    fallback: 'no bound',
    help: 'Maximum requests per second of one client, by token or address',
  },
  {
    name: 'client-requests',
    value: 'COUNT',
    example: '2000',
    fallback: '2000',
    help: 'Maximum open requests of one client, by token, streams included',
  },
  {
    name: 'address-connections',
    value: 'COUNT',
    example: '2000',
    fallback: '2000',
    help: 'Maximum connections from one address',
  },
  {
    name: 'host-names',
    value: 'NAME,NAME,...',
    example: 'files.example.org,*.files.example.org',
    fallback: null,
    help: 'Without --tokens: further names by which clients ask for this server, *.NAME for all below one. Addresses, localhost and the names of the servers always count',
  },
  {
    name: 's3-listen',
    value: 'HOST:PORT',
    example: '127.0.0.1:7480',
    fallback: 'none: no S3',
    help: 'Listen address of the S3 interface, with the TLS and the tokens of this server',
  },
  {
    name: 's3-buckets',
    value: 'WHAT',
    example: 'volumes',
    fallback: 'volumes',
    help: 'What the buckets are: "volumes", or the directories in VOLUME:/PATH',
  },
  {
    name: 's3-domains',
    value: 'NAME,NAME,...',
    example: 's3.example.org',
    fallback: 'none: the bucket is in the path only',
    help: 'Host names before which the name of a bucket may be, as in bucket.s3.example.org',
  },
  {
    name: 's3-upload-expiry',
    value: 'TIME',
    example: '7d',
    fallback: '7d',
    help: 'How long an unfinished multipart upload is kept',
  },
  {
    name: 'insecure-network',
    value: null,
    example: 'true',
    fallback: null,
    help:
      'Allow addresses outside of this machine without TLS and tokens: every host on the network gets ' +
      'full access. Only for trusted networks',
  },
  {
    name: 'config',
    value: 'FILE.toml',
    example: 'leasehold.toml',
    fallback: null,
    help: 'File with any of these options, written as TOML',
  },
] as const;

export type OptionName = (typeof OPTIONS)[number]['name'];

/** Where the value of an option was found: a label for messages, and the texts. */
export interface OptionSource {
  readonly label: string;
  readonly texts: readonly string[];
}

export function optionEnv(name: OptionName): string {
  return name === 'peer' ? 'LEASEHOLD_PEERS' : `LEASEHOLD_${name.toUpperCase().replaceAll('-', '_')}`;
}

/** @returns `: did you mean …?` with the nearest of `names`, or an empty text */
export function suggestion(given: string, names: readonly string[], prefix: string, distanceMax = 3): string {
  const near = names
    .map((name) => ({ name, distance: editDistance(given, name) }))
    // Short words are near to each other: at least half of the word must match.
    .filter(({ name, distance }) => distance <= Math.min(distanceMax, name.length / 2))
    .toSorted((a, b) => a.distance - b.distance)[0];
  const [longer] = names.filter((name) => given.length >= 3 && name.startsWith(given));
  const found = near?.name ?? longer;
  return found === undefined ? '' : `: did you mean ${prefix}${found}?`;
}

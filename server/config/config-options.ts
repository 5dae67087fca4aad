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
    help: 'Where a server of the cluster is to be found; once for each, this one included',
  },
  {
    name: 'join',
    value: 'URL,URL,...',
    example: 'http://10.0.0.1:7401',
    fallback: null,
    help: 'Instead of all --peer: servers of a running cluster that this one shall come to; the others learn of it by themselves',
  },
  {
    name: 'zone',
    value: 'LABEL',
    example: 'rack-1',
    fallback: 'none: it fails alone',
    help: 'What fails together with this server: a rack, a room. Replicas of a file go to different zones as long as there are any',
  },
  {
    name: 'listen',
    value: 'HOST:PORT',
    example: '127.0.0.1:7401',
    fallback: 'the own address among the peers',
    help: 'Where this server accepts connections, for example 0.0.0.0:7401',
  },
  {
    name: 'data',
    value: 'DIR',
    example: '/var/lib/leasehold',
    fallback: null,
    help: 'Data folder of this server; made if it is missing',
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
    help: 'Length of a lease, at least 10 times the clock skew; the same on all servers. A dead primary is replaced after about this time',
  },
  {
    name: 'named-lease-max',
    value: 'TIME',
    example: '15s',
    fallback: '15s',
    help: 'Longest lease under a name that can be asked for, at least 10 times the clock skew; the same on all servers. After a start, a server is silent about names for about this time',
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
    help: "Most that two servers' clocks may differ by; the same on all servers",
  },
  {
    name: 'catalog-members',
    value: 'ID,ID,...',
    example: 's1,s2,s3',
    fallback: 'all servers, or the first five',
    help: 'Servers that hold the catalog; the same on all servers',
  },
  {
    name: 'op-timeout',
    value: 'TIME',
    example: '15s',
    fallback: '15s, or two leases if that is longer',
    help: 'How long one request may take before it fails',
  },
  {
    name: 'lease-idle',
    value: 'TIME',
    example: '60s',
    fallback: 'three leases',
    help: 'How long a file that nobody uses keeps its primary; one that was closed and settled a fifteenth of that',
  },
  {
    name: 'gc-grace',
    value: 'TIME',
    example: '1h',
    fallback: '1h',
    help: 'How long replicas are kept of files that the catalog no longer knows, or that have moved to other servers',
  },
  {
    name: 'replace-after',
    value: 'TIME',
    example: '1h',
    fallback: '1h',
    help: 'How long a server may be out of reach before its replicas are replaced on others',
  },
  {
    name: 'compare-every',
    value: 'TIME',
    example: '10m',
    fallback: '10m',
    help: 'How often this server compares its replicas with those of others; also whenever one comes back',
  },
  {
    name: 'scrub-every',
    value: 'TIME',
    example: '7d',
    fallback: '7d',
    help: 'How long after one pass over all objects on the disk, in search of damaged ones, the next one begins',
  },
  {
    name: 'scrub-rate',
    value: 'RATE',
    example: '20MiB/s',
    fallback: '20MiB/s',
    help: 'How fast such a pass reads at the most',
  },
  {
    name: 'catch-up-rate',
    value: 'RATE',
    example: '200MiB/s',
    fallback: 'no bound',
    help: 'How fast replicas here fetch what they lack from others at the most, all together; a new primary is never slowed down',
  },
  {
    name: 'direct-writes',
    value: 'WHEN',
    example: 'auto',
    fallback: 'auto',
    help: 'auto or off: whether large files are written past the page cache, where the file system and the disk are made for it',
  },
  {
    name: 'rebuild',
    value: null,
    example: 'true',
    fallback: null,
    help: 'If the data folder is damaged, put what is in it aside, and start with an empty one that is filled from the other servers',
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
    fallback: 'none: everything is in the clear',
    help: 'Certificate of this server, as "leasehold cert create-node" makes it; together with --tls-key and --tls-ca',
  },
  {
    name: 'tls-key',
    value: 'FILE',
    example: 's1-key.pem',
    fallback: null,
    help: 'Its key',
  },
  {
    name: 'tls-ca',
    value: 'FILE',
    example: 'ca.pem',
    fallback: null,
    help: 'Authorities that sign the certificates of servers and clients: one, or two while they change',
  },
  {
    name: 'tokens',
    value: 'FILE',
    example: 'tokens.json',
    fallback: 'none: nobody is asked who he is',
    help: 'Tokens of clients, as "leasehold token create" writes them; the same on all servers',
  },
  {
    name: 'client-rate',
    value: 'NUMBER/s',
    example: '2000/s',
    fallback: 'no bound',
    help: 'Requests that one client, by its token or its address, may make of this server in a second',
  },
  {
    name: 'client-requests',
    value: 'COUNT',
    example: '2000',
    fallback: '2000',
    help: 'Requests that one client, by its token, may have under way at this server at a time, streams included',
  },
  {
    name: 'address-connections',
    value: 'COUNT',
    example: '2000',
    fallback: '2000',
    help: 'Connections that this server keeps from one address',
  },
  {
    name: 'host-names',
    value: 'NAME,NAME,...',
    example: 'files.example.org,*.files.example.org',
    fallback: null,
    help: 'Without --tokens: further names by which clients ask for this server, *.NAME for all below one. Addresses, localhost and the names of the servers always count',
  },
  {
    name: 'insecure-network',
    value: null,
    example: 'true',
    fallback: null,
    help: 'Allow addresses outside of this machine without TLS and tokens. Only for a network that you trust wholly: whoever is on it can do everything',
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

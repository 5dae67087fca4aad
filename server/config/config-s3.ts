import type { Address } from './address.ts';
import { type Given, readAddress, readHostNames } from './config-network.ts';
import { ConfigurationError } from './configuration-error.ts';

/** The S3 interface of a server. */
export interface S3Config {
  readonly listen: Address;
  /** The directory whose directories are the buckets; null: volumes are. */
  readonly directory: { readonly volume: string; readonly names: readonly string[] } | null;
  /** Hosts before which the name of a bucket may be. */
  readonly domains: readonly string[];
  readonly uploadExpiryMs: number;
}

export interface S3Given {
  readonly listen: Given;
  readonly buckets: Given;
  readonly domains: Given;
  readonly uploadExpiry: Given;
  readonly uploadExpiryMs: number;
}

/** @returns null without `--s3-listen` @throws ConfigurationError */
export function readS3(options: S3Given): S3Config | null {
  const { listen, buckets, domains, uploadExpiry, uploadExpiryMs } = options;
  if (listen === null) {
    const useless = buckets ?? domains ?? uploadExpiry;
    if (useless === null) return null;
    throw new ConfigurationError(`Cannot use ${useless.label} without S3: add --s3-listen HOST:PORT`);
  }
  return {
    listen: readAddress(listen, '127.0.0.1:7480'),
    directory: readDirectory(buckets),
    domains: readHostNames(domains).map((name) => name.toLowerCase()),
    uploadExpiryMs,
  };
}

function readDirectory(given: Given): S3Config['directory'] {
  if (given === null || given.value === 'volumes') return null;
  const [, volume, path = ''] = /^([a-z0-9][a-z0-9._-]{0,62}):\/(.*)$/s.exec(given.value) ?? [];
  const names = path.split('/').filter((name) => name !== '');
  if (volume !== undefined && names.every((name) => name !== '.' && name !== '..')) return { volume, names };
  throw new ConfigurationError(
    `Cannot use ${given.label} "${given.value}": write "volumes", or a directory whose directories are the buckets, such as main:/buckets`,
  );
}

import { durationParse } from '../../base/duration.ts';
import { type Address, addressParse } from './address.ts';
import { type Given, readHostNames } from './config-network.ts';
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

export interface S3Texts {
  readonly listen: Given;
  readonly buckets: Given;
  readonly domains: Given;
  readonly uploadExpiry: Given;
}

const UPLOAD_EXPIRY_MS_DEFAULT = 7 * 86_400_000;

/** @returns null without `--s3-listen` @throws ConfigurationError */
export function readS3({ listen: given, buckets, domains, uploadExpiry }: S3Texts): S3Config | null {
  if (given === null) {
    const useless = buckets ?? domains ?? uploadExpiry;
    if (useless === null) return null;
    throw new ConfigurationError(`Cannot use ${useless.label} without S3: add --s3-listen HOST:PORT`);
  }
  const listen = addressParse(given.value);
  if (listen === null)
    throw new ConfigurationError(
      `Cannot use ${given.label} "${given.value}": write HOST:PORT, such as 127.0.0.1:7480, with a port from 1 to 65535`,
    );
  return {
    listen,
    directory: readDirectory(buckets),
    domains: readHostNames(domains).map((name) => name.toLowerCase()),
    uploadExpiryMs: readExpiry(uploadExpiry),
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

function readExpiry(given: Given): number {
  const ms = given === null ? UPLOAD_EXPIRY_MS_DEFAULT : durationParse(given.value);
  if (ms !== null && ms > 0) return ms;
  throw new ConfigurationError(
    `Cannot use ${given?.label} "${given?.value}": invalid duration; write 7d or 12h`,
  );
}

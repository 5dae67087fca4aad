import { S3Client, type S3ClientParts } from '../s3/s3-client.ts';
import { parseS3Url, type S3Options, s3SettingsOf } from '../s3/s3-settings.ts';
import { usageFailure } from '../terminal/failure.ts';
import { type ChainPlace, LINK_SUFFIX } from './backup-store.ts';
import { S3Store } from './s3-store.ts';

const ARCHIVE = /\.(?:tar|gz|tgz|pax)$/;

export interface S3PlaceOptions extends S3Options {
  /** How long to repeat a request, in milliseconds. */
  readonly timeout?: number;
}

/** @returns the backups below a prefix, or one object of them. @throws CommandFailure */
export function s3PlaceOf(
  text: string,
  options: S3PlaceOptions,
  parts: Pick<S3ClientParts, 'world' | 'signal' | 'report'>,
): ChainPlace {
  const { bucket, key } = parseS3Url(text);
  if (ARCHIVE.test(key))
    throw usageFailure(
      `Cannot use "${text}" for a tar archive: only chains of backups are in S3`,
      'name a prefix, s3://BUCKET/PREFIX/, or an object *.lhb',
    );
  const settings = s3SettingsOf(bucket, options);
  const client = new S3Client({ ...parts, settings, retryMs: options.timeout });
  if (!key.endsWith(LINK_SUFFIX))
    return { store: new S3Store(client, key === '' || key.endsWith('/') ? key : `${key}/`), name: null };
  const slash = key.lastIndexOf('/') + 1;
  return { store: new S3Store(client, key.slice(0, slash)), name: key.slice(slash) };
}

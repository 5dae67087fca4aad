import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { S3Credentials } from '../../platform/s3-credentials.ts';
import {
  CommandFailure,
  EXIT_UNAUTHORIZED,
  isSystemError,
  systemReason,
  usageFailure,
} from '../terminal/failure.ts';

const SCHEME = 's3://';
const BUCKET = /^(?!\.+$)[A-Za-z0-9._-]{1,255}$/;
/** Names that AWS resolves, and its certificates cover. */
const HOST_LABEL = /^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$/;
const REGION = /^[A-Za-z0-9-]{1,64}$/;
const DEFAULT_REGION = 'us-east-1';

/** `s3://BUCKET/KEY`; the key may be empty, or a prefix. */
export interface S3Url {
  readonly bucket: string;
  readonly key: string;
}

export interface SessionCredentials extends S3Credentials {
  /** Of temporary credentials. */
  readonly sessionToken: string | null;
}

/** Where the objects of a bucket are, and how to ask for them. */
export interface S3Settings {
  readonly bucket: string;
  readonly origin: string;
  /** Precedes each key, without a slash at its end; percent-encoded. */
  readonly basePath: string;
  readonly region: string;
  readonly credentials: SessionCredentials;
  /** PEM; null: the certificate authorities of the system. */
  readonly ca: string | null;
}

export interface S3Options {
  readonly s3Endpoint?: string | undefined;
  readonly s3Ca?: string | undefined;
}

/** @throws CommandFailure for wrong usage */
export function parseS3Url(text: string): S3Url {
  const [bucket = '', ...parts] = text.slice(SCHEME.length).split('/');
  if (!BUCKET.test(bucket))
    throw usageFailure(`Cannot use "${text}": it names no bucket`, 'a place in S3 is s3://BUCKET/PREFIX/');
  // Proxies and clients resolve "..", and some stores have no empty names.
  if (parts.slice(0, -1).includes('') || parts.includes('.') || parts.includes('..'))
    throw usageFailure(`Cannot use "${text}": a part of its key is empty, "." or ".."`);
  return { bucket, key: parts.join('/') };
}

/**
 * The settings of a bucket, from options, else from the environment as other clients of S3 read it.
 * @throws CommandFailure if there are no credentials, or for wrong usage
 */
export function s3SettingsOf(
  bucket: string,
  { s3Endpoint, s3Ca }: S3Options,
  env: NodeJS.ProcessEnv = process.env,
): S3Settings {
  const region = env.AWS_REGION || env.AWS_DEFAULT_REGION || DEFAULT_REGION;
  if (!REGION.test(region)) throw usageFailure(`Cannot use the region "${region}" of AWS_REGION`);
  const endpoint = s3Endpoint || env.AWS_ENDPOINT_URL_S3 || env.AWS_ENDPOINT_URL;
  const ca = s3Ca || env.AWS_CA_BUNDLE;
  return {
    ...{ bucket, region },
    ...(endpoint === undefined || endpoint === '' ? ofAws(bucket, region) : ofEndpoint(endpoint, bucket)),
    credentials: credentialsOf(env),
    ca: ca === undefined || ca === '' ? null : textOf(ca, 'the CA certificates'),
  };
}

function ofAws(bucket: string, region: string): Pick<S3Settings, 'origin' | 'basePath'> {
  const host = `s3.${region}.amazonaws.com${region.startsWith('cn-') ? '.cn' : ''}`;
  return HOST_LABEL.test(bucket)
    ? { origin: `https://${bucket}.${host}`, basePath: '' }
    : { origin: `https://${host}`, basePath: `/${bucket}` };
}

function ofEndpoint(text: string, bucket: string): Pick<S3Settings, 'origin' | 'basePath'> {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url !== null && url.username + url.password !== '')
    throw usageFailure(
      'Cannot use the S3 endpoint: its URL has a user or a password',
      'set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead',
    );
  if (url === null || !/^https?:$/.test(url.protocol) || url.search !== '')
    throw usageFailure(`Cannot use the S3 endpoint "${text}": it is not like https://s3.example.org`);
  return { origin: url.origin, basePath: `${url.pathname.replace(/\/+$/, '')}/${bucket}` };
}

/** @throws CommandFailure if there are none */
function credentialsOf(env: NodeJS.ProcessEnv): SessionCredentials {
  const ofEnvironment = {
    aws_access_key_id: env.AWS_ACCESS_KEY_ID,
    aws_secret_access_key: env.AWS_SECRET_ACCESS_KEY,
    aws_session_token: env.AWS_SESSION_TOKEN,
  };
  const found = credentialsIn(ofEnvironment);
  if (found !== null) return found;
  const file = env.AWS_SHARED_CREDENTIALS_FILE || join(env.HOME || homedir(), '.aws/credentials');
  const profile = env.AWS_PROFILE || 'default';
  const ofFile = credentialsIn(profileOf(file, profile));
  if (ofFile !== null) return ofFile;
  throw new CommandFailure(
    EXIT_UNAUTHORIZED,
    'Cannot use S3: there are no credentials',
    `set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them to the profile "${profile}" of ${file}`,
  );
}

function credentialsIn(fields: Readonly<Record<string, string | undefined>>): SessionCredentials | null {
  const {
    aws_access_key_id: accessKeyId,
    aws_secret_access_key: secretAccessKey,
    aws_session_token: token,
  } = fields;
  if (!accessKeyId || !secretAccessKey) return null;
  for (const field of [accessKeyId, secretAccessKey, token ?? ''])
    if (!/^[\x20-\x7e]*$/.test(field))
      throw usageFailure(
        'Cannot use the credentials of S3: one has a line break, or a character beyond ASCII',
      );
  return { accessKeyId, secretAccessKey, sessionToken: token || null };
}

/** The settings below `[profile]` in a file of lines `name = value`; none without the file. */
function profileOf(file: string, profile: string): Readonly<Record<string, string>> {
  const fields: Record<string, string> = {};
  let isWanted = false;
  for (const line of textIfThere(file).split('\n')) {
    const [, section] = /^\s*\[\s*(.*?)\s*\]/.exec(line) ?? [];
    if (section !== undefined) isWanted = section === profile;
    const [, name, value] = /^\s*([a-z_]+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (isWanted && name !== undefined) fields[name] = value ?? '';
  }
  return fields;
}

function textIfThere(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (isSystemError(error) && (error.code === 'ENOENT' || error.code === 'ENOTDIR')) return '';
    throw error;
  }
}

function textOf(file: string, what: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw usageFailure(`Cannot read ${what} in "${file}": ${systemReason(error)}`);
  }
}

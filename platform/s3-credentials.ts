import { createHmac } from 'node:crypto';

const PREFIX = 'LHS3';
const ACCESS_KEY = /^LHS3([0-9A-F]{12})$/;

/** A signature of S3 needs the secret itself, of which servers have no copy: both sides derive it. */
export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

/** What servers store of a token, and its creator knows. */
interface StoredToken {
  readonly id: string;
  readonly hash: string;
}

/**
 * The S3 credentials of a token.
 * @param key one of the keys of the token file, in base64url: a new one gives new secrets
 */
export function s3CredentialsOf(key: string, { id, hash }: StoredToken): S3Credentials {
  const secret = createHmac('sha256', Buffer.from(key, 'base64url')).update(
    `leasehold s3 secret 1\n${id}\n${hash}`,
  );
  return { accessKeyId: PREFIX + id.toUpperCase(), secretAccessKey: secret.digest('base64url') };
}

/** @returns the id of the access key's token; null if it is none of this cluster */
export function tokenIdOf(accessKeyId: string): string | null {
  return ACCESS_KEY.exec(accessKeyId)?.[1]?.toLowerCase() ?? null;
}

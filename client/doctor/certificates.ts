import { once } from 'node:events';
import { connect } from 'node:tls';
import { systemWorld } from '../../world/system-world.ts';
import type { Access } from '../transport/access.ts';
import { type Finding, failed, ok, warning } from './finding.ts';

const ANSWER_MS = 3_000;
const DAY_MS = 86_400_000;
const SOON_DAYS = 14;
const RENEW = 'renew it with "leasehold cert create-node", and send the server SIGHUP';

/** Checks whether this machine trusts the servers' certificates, and for how long they are valid. */
export async function examineCertificates(urls: readonly string[], access: Access): Promise<Finding[]> {
  const secure = urls.map((url) => new URL(url)).filter(({ protocol }) => protocol === 'https:');
  const findings = await Promise.all(secure.map((url) => examineCertificate(url, access)));
  // The check of servers reports those that do not answer.
  return findings.filter((finding) => finding !== null);
}

async function examineCertificate(url: URL, access: Access): Promise<Finding | null> {
  const name = `certificate of ${url.host}`;
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const socket = connect({ host, port: Number(url.port || 443), ...access.tls, rejectUnauthorized: false });
  try {
    await once(socket, 'secureConnect', { signal: systemWorld.timeout(ANSWER_MS) });
    const end = socket.getPeerX509Certificate()?.validToDate;
    if (end === undefined) return null;
    const days = Math.floor((end.getTime() - systemWorld.wallMs()) / DAY_MS);
    const until = `it ends on ${end.toISOString().slice(0, 10)}`;
    if (days < 0) return failed(name, `it ended on ${end.toISOString().slice(0, 10)}`, RENEW);
    if (!socket.authorized) {
      const fix = 'give the CA certificate of the cluster with --ca or LEASEHOLD_CA';
      return failed(name, `it is not trusted here: ${String(socket.authorizationError)}`, fix);
    }
    return days < SOON_DAYS ? warning(name, `${until}, in ${days} days`, RENEW) : ok(name, until);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return null;
  } finally {
    socket.destroy();
  }
}

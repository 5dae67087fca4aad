import { request } from '../../platform/undici.ts';
import { systemWorld } from '../../world/system-world.ts';
import { generalFailure } from '../terminal/failure.ts';
import { formatDuration } from '../terminal/quantities.ts';
import { Stage } from './stage.ts';

const PATH = '/greeting';
const GREETING = 'hello from a file that three servers have\n';

export async function writeOnce({ servers }: Stage, say: (text: string) => void): Promise<void> {
  const { url, id } = (servers[0] as (typeof servers)[number]).plan;
  const startMs = systemWorld.nowMs();
  const answer = await request(`${url}/v1/files/${Stage.VOLUME}${PATH}`, { method: 'PUT', body: GREETING });
  await answer.body.dump();
  if (answer.statusCode !== 201) throw generalFailure(`PUT ${PATH}: status ${answer.statusCode}`);
  const took = formatDuration(systemWorld.nowMs() - startMs);
  say(`  PUT ${PATH} to ${id}: a majority has it on disk after ${took}`);
}

export async function readAnywhere({ servers }: Stage, say: (text: string) => void): Promise<void> {
  for (const { plan } of servers) {
    const startMs = systemWorld.nowMs();
    const answer = await request(`${plan.url}/v1/files/${Stage.VOLUME}${PATH}`);
    const text = await answer.body.text();
    if (text !== GREETING) throw generalFailure(`${plan.id} has something else in ${PATH}`);
    const served = answer.headers['leasehold-served'];
    const how = served === 'forwarded' ? ', which forwarded the read' : ', from its own disk';
    say(
      `  GET ${PATH} from ${plan.id}: the same bytes after ${formatDuration(systemWorld.nowMs() - startMs)}${served === undefined ? '' : how}`,
    );
  }
}

export async function showLease({ client }: Stage, say: (text: string) => void): Promise<void> {
  const { primary, epoch, lease, replicas } = await client.info(Stage.VOLUME, PATH);
  say(
    `  ${primary} is the primary of ${PATH} in epoch ${epoch}; its lease runs for ${formatDuration(lease.remainingMs)} more`,
  );
  say(
    '  it renews the lease while it runs and the file is in use; no other server orders writes before the lease ends',
  );
  for (const { server, role, version } of replicas) say(`  ${server}: ${role}, version ${version}`);
}

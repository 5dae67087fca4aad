/**
 * A program that must never run twice at a time: it sends requests to a resource repeatedly, with its fencing token.
 * Its arguments: the URL of the resource, and its own name.
 */
import { Agent, request } from 'node:http';

const [url = '', who = ''] = process.argv.slice(2);
const agent = new Agent({ keepAlive: true });
const headers = {
  'fencing-token': process.env.LEASEHOLD_LEASE_TOKEN ?? '',
  who,
  pid: String(process.pid),
  supervisor: String(process.ppid),
};

function act(): void {
  const sent = request(url, { method: 'POST', agent, headers }, (response) => {
    response.resume();
    response.on('end', () => setTimeout(act, 10));
  });
  // The test is over.
  sent.on('error', () => process.exit(1));
  sent.end();
}

act();

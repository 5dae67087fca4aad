import type { Command } from 'commander';
import type { AttachedAt } from '../../wire/junctions.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { located } from '../cluster/location.ts';
import { looksRemote, parseRemotePath, type RemotePath } from '../cluster/remote-path.ts';
import { preconditionFailure, usageFailure } from '../terminal/failure.ts';
import { printable, printJson, printLine } from '../terminal/output.ts';
import { formatBytes } from '../terminal/quantities.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { junctionLine } from '../tree/report.ts';
import { clusterCommand, withClient } from './cluster-command.ts';
import { placeInto } from './transfer.ts';

const COPY_TIMEOUT_MS = 30 * 60_000;

interface CopyFlags {
  readonly recursive?: true;
  readonly resume?: true;
  readonly replace: boolean;
  readonly json?: true;
}

export function addCopyCommand(program: Command): void {
  clusterCommand(program, 'cp', 'copy within the cluster, also to another volume')
    .argument('<from>', 'VOLUME:/path')
    .argument('<to>', 'VOLUME:/path; if it is a directory, the copy goes into it')
    .option('-r, --recursive', 'copy a directory with all that is in it')
    .option('--resume', 'resume an interrupted recursive copy: <to> is the directory that it created')
    .option('--no-replace', 'fail if the target exists')
    .option('--json', 'print what was copied as JSON')
    .action(async (from: string, to: string, flags: CopyFlags, command: Command) => {
      refuseLocal(from, to);
      await withClient(command, (client, call) =>
        copy(client, parseRemotePath(from), parseRemotePath(to), flags, {
          timeoutMs: COPY_TIMEOUT_MS,
          ...call,
        }),
      );
    });
}

function refuseLocal(from: string, to: string): void {
  const [fromIsRemote, toIsRemote] = [looksRemote(from), looksRemote(to)];
  if (fromIsRemote === toIsRemote) return;
  const [local, command] = fromIsRemote ? [to, 'get'] : [from, 'put'];
  throw usageFailure(
    `Cannot copy with "${local}": cp copies within the cluster, and that is a file of this machine`,
    `use "leasehold ${command}", with --recursive for a directory`,
  );
}

async function copy(
  client: ClusterClient,
  from: RemotePath,
  to: RemotePath,
  { recursive, resume, replace: overwrite, json }: CopyFlags,
  call: CallOptions,
): Promise<void> {
  if (resume && !(recursive && overwrite))
    throw usageFailure('Cannot resume: --resume requires --recursive and excludes --no-replace');
  const { volume, path } = await located(client, from, call);
  const source = await client.resolve(volume, path, call);
  const target = resume ? await located(client, to, call) : await placeInto(client, 'copy', from, to, call);
  const paths = { from: `${from.volume}:${from.path}`, to: `${target.volume}:${target.path}` };
  if (source.kind !== 'directory') {
    await client.admin.copyFile(from, target, { overwrite, ...call });
    if (json) printJson({ ...paths, files: 1 });
    return;
  }
  if (!recursive) {
    throw preconditionFailure(
      `Cannot copy ${paths.from}: it is a directory`,
      'use --recursive to copy it with all that is in it',
    );
  }
  const sum = { files: 0, directories: 0, links: 0, bytes: 0, same: 0 };
  const skipped: string[] = [];
  const junctions: AttachedAt[] = [];
  try {
    // With --no-replace a copy cannot be resumed, so it need not be recognizable.
    for await (const part of client.admin.copyTree(from, target, { overwrite, resume: overwrite, ...call })) {
      sum.files += part.files;
      sum.directories += part.directories;
      sum.links += part.links;
      sum.bytes += part.bytes;
      sum.same += part.same ?? 0;
      skipped.push(...part.skipped);
      junctions.push(...(part.junctions ?? []));
    }
  } catch (error) {
    const again = `leasehold cp -r --resume ${paths.from} ${paths.to}`;
    if (overwrite) process.stderr.write(`leasehold: interrupted; "${printable(again)}" resumes it\n`);
    throw error;
  }
  if (json) return printJson({ ...paths, ...sum, skipped, junctions });
  for (const junction of junctions) printLine(junctionLine(junction, 'copied'));
  for (const path of skipped) printLine(`Skipped ${printable(path)}: a special file has no contents`);
  const sameText = sum.same === 0 ? '' : `; ${sum.same} existed already`;
  printLine(`Copied ${sum.files} files, ${formatBytes(sum.bytes)}, to ${printable(paths.to)}${sameText}`);
}

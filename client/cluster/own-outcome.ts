import type { Attributes, Command, CommandResults, Place } from '../../wire/catalog-api.ts';
import type { FileWithContents, NewFileOutcome } from '../../wire/new-files.ts';
import type { OwnOutcome } from './catalog-cache.ts';

type Names = OwnOutcome['names'];

/** @returns the names after a command of this client; null if uncertain. `moved`: attributes of what a rename moves */
export function outcomeOfCommand(
  command: Command,
  result: CommandResults[Command['kind']],
  moved: Attributes | undefined,
): OwnOutcome | null {
  // Commands that changed nothing, and retries, return no time.
  if (!('atNs' in result) || result.atNs === undefined) return null;
  const { atNs } = result;
  switch (command.kind) {
    case 'unlink':
      return { names: named(command.place, null), atNs, directories: 0 };
    case 'unlink-files':
    case 'unlink-fenced': {
      const { files } = result as CommandResults['unlink-files'];
      const isWhole = files.every((links) => typeof links === 'number');
      const names = command.files.map(({ parent, name }) => ({ parent, name, inode: null }));
      return isWhole ? { names, atNs, directories: 0 } : null;
    }
    case 'remove-directory':
      return { names: named(command.place, null), atNs, directories: -1 };
    case 'create-file':
    case 'make-node':
    case 'symlink':
    case 'link': {
      const { attributes } = result as CommandResults['link'];
      return { names: named(command.place, attributes.inode), atNs, directories: 0 };
    }
    case 'make-directory': {
      const { attributes } = result as CommandResults['make-directory'];
      return { names: named(command.place, attributes.inode), atNs, directories: 1 };
    }
    case 'rename': {
      // A directory's link count includes its subdirectories.
      if (moved === undefined || moved.kind === 'directory' || command.mode === 'exchange') return null;
      const names = [...named(command.from, null), ...named(command.to, moved.inode)];
      return { names, atNs, directories: 0 };
    }
    default:
      return null;
  }
}

/** As `outcomeOfCommand`, for files created with contents; null unless all were, at one time. */
export function outcomeOfCreations(
  files: readonly FileWithContents[],
  outcomes: readonly NewFileOutcome[],
): OwnOutcome | null {
  const names: Names[number][] = [];
  const times = new Set<string>();
  for (const [index, { parent, name, inode }] of files.entries()) {
    const outcome = outcomes[index];
    if (outcome?.kind !== 'created') return null;
    times.add(outcome.namedNs);
    names.push({ parent, name, inode });
  }
  const [atNs] = times;
  return atNs === undefined || times.size > 1 ? null : { names, atNs, directories: 0 };
}

function named(place: Place, inode: number | null): Names {
  return 'volume' in place ? [] : [{ parent: place.parent, name: place.name, inode }];
}

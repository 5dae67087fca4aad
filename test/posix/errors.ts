import type { Rule } from './rules.ts';

/** A page of POSIX.1-2024, and the calls of its rules. */
interface Page {
  readonly page: string;
  readonly calls: readonly string[];
  /** The errors of the page, and those that Linux returns for the same call. */
  readonly errors: readonly string[];
}

function page(name: string, calls: string, errors: string): Page {
  return { page: name, calls: calls.split(' '), errors: errors.split(' ') };
}

const WAY = 'EACCES ELOOP ENAMETOOLONG ENOENT ENOTDIR EROFS';

/** The lists also have errors that any call with a path, or any change, may return. */
export const PAGES: readonly Page[] = [
  page('open', 'open create', `${WAY} EEXIST EILSEQ EISDIR ENXIO EPERM ETXTBSY`),
  page('rename', 'rename rename-with', `${WAY} EBUSY EEXIST EILSEQ EINVAL EISDIR ENOTEMPTY EPERM EXDEV`),
  page('unlink', 'unlink', `${WAY} EISDIR EPERM`),
  page('link', 'link name', `${WAY} EEXIST EILSEQ EPERM EXDEV`),
  page('chmod', 'chmod fchmod', `${WAY} EPERM`),
  page('chown', 'chown lchown fchown', `${WAY} EPERM`),
  page('mkdir', 'mkdir', `${WAY} EEXIST EILSEQ`),
  page('rmdir', 'rmdir', `${WAY} EBUSY EINVAL ENOTEMPTY EPERM`),
  page('symlink', 'symlink', `${WAY} EEXIST EILSEQ`),
  page('truncate, ftruncate', 'truncate ftruncate', `${WAY} EFBIG EINVAL EISDIR ETXTBSY`),
  page('utimensat', 'utimens lutimens futimens', `${WAY} EINVAL EPERM`),
  page('mkfifo, mknod', 'mkfifo mknod', `${WAY} EEXIST EILSEQ EPERM`),
];

/** @returns the number of rules' lines that expect the error from one of the calls */
export function countOf(rules: readonly Rule[], calls: readonly string[], error: string): number {
  const lines = rules.flatMap(({ lines: of }) => of.map(({ text }) => text));
  return lines.filter((text) => {
    const [, call = '', answers = ''] =
      /^(?:(?:root|alice|bob|carol)(?:@\d)? )?(\S+) .*[-~]> (.+)$/.exec(text) ?? [];
    return calls.includes(call) && answers.split(' | ').includes(error);
  }).length;
}

/** @returns the rows of the table in docs/posix.md */
export function errorRows(rules: readonly Rule[]): string[] {
  return PAGES.map(({ page: name, calls, errors }) => {
    const counts = errors.map((error) => `\`${error}\` ${countOf(rules, calls, error)}`);
    return `| ${name.replaceAll(/(\w+)/g, '`$1`')} | ${counts.join(', ')} |`;
  });
}

/** What the pages' scripts find in the theme's and Sphinx's, to which tools/pages/finish.py joins them. */

declare function toggleFullScreen(): void;

declare const Search: {
  texts: Record<string, string>; // by page, as far as they are loaded
  asked: Record<string, Promise<string>>;
  textOf: (page: string) => Promise<string>;
};

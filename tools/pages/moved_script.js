// @ts-check
/* The page of an address that a chapter had before leads on, and keeps the part of the page that was asked for. */
(() => {
  const link = document.querySelector("a");
  if (link) location.replace(`${link.href}${location.search}${location.hash}`);
})();

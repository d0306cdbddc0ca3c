// @ts-check
/* In a frame, the instrument alone; by itself, with the line to copy, which has this file's own address. */
(() => {
  if (window.self !== window.top) document.documentElement.classList.add("framed");
  const line = document.querySelector("footer pre");
  if (line?.textContent) line.textContent = line.textContent.replace(/src="[^"]*"/, () => `src="${location.href.split("#")[0]}"`);
})();

#include "report/report_page.hpp"

namespace forge {

const char* const page_style = R"css(
:root {
  color-scheme: light dark;
  --back: #ffffff; --card: #f7f8f9; --text: #1c2126; --faint: #66707a; --line: #d5dade; --alert: #c0392b;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #aa4499; --c4: #b8860b; --c5: #4477aa; --c6: #882255; --c7: #666633;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14171a; --card: #1c2024; --text: #e4e7ea; --faint: #98a2ab; --line: #363c42; --alert: #ff7b6b;
    --c0: #56b4e9; --c1: #ff9a4d; --c2: #2fcc9f; --c3: #e38fd4; --c4: #f0d24a; --c5: #8fb6e8; --c6: #ee8fae; --c7: #c5c58a;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
main { max-width: 1500px; margin: 0 auto; padding: 16px; }
h1 { font-size: 22px; margin: 0 0 12px; }
h2 { font-size: 16px; margin: 28px 0 8px; }
h3 { font-size: 13px; margin: 0 0 4px; font-weight: 600; }
.controls { position: sticky; top: 0; z-index: 2; background: var(--back); padding: 8px 0; border-bottom: 1px solid var(--line);
  display: flex; flex-wrap: wrap; gap: 6px 18px; align-items: center; }
.controls label { white-space: nowrap; }
.chip { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin: 0 5px 0 3px; vertical-align: -1px; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 470px), 1fr)); gap: 14px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 10px 12px; min-width: 0; margin-bottom: 14px; }
.charts .card { margin: 0; }
.card svg { display: block; width: 100%; height: auto; touch-action: pan-y; }
.card canvas { display: block; width: 100%; image-rendering: pixelated; border: 1px solid var(--line); }
svg text { fill: var(--faint); font-size: 11px; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .event { stroke-width: 1; stroke-dasharray: 3 3; opacity: 0.7; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
td, th { text-align: left; padding: 3px 12px 3px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--faint); font-weight: 500; }
.facts td, .facts th { white-space: nowrap; }
pre { margin: 6px 0; padding: 10px; background: var(--card); border: 1px solid var(--line); border-radius: 6px; overflow-x: auto;
  white-space: pre-wrap; overflow-wrap: anywhere; font: 12px/1.4 ui-monospace, monospace; }
.note { border-left: 3px solid var(--alert); padding: 2px 10px; margin: 4px 0; }
.faint { color: var(--faint); font-size: 12px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 12px; }
.bar { display: flex; height: 20px; border-radius: 3px; overflow: hidden; margin: 4px 0; background: var(--line); }
#tip { position: fixed; pointer-events: none; z-index: 3; background: var(--back); border: 1px solid var(--line); border-radius: 4px;
  padding: 4px 8px; font-size: 12px; white-space: pre; display: none; max-width: 60vw; }
)css";

}  // namespace forge

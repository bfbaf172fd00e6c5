// The page of the explorer: its data and its transport.
import { mount, pageTransport } from "./explore.js";

const about = JSON.parse(document.getElementById("about").textContent);
mount(document.querySelector(".explorer"), pageTransport(), about);

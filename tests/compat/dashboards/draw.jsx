// Draws one dashboard with Grafana's own components: what its file says and what Prometheus answered, as
// window.BOARD and window.ANSWERS (by panel's id: frames as matrices of [seconds, text]). See pictures.py.
import {
  applyFieldOverrides, createTheme, dateTime, FieldConfigOptionsRegistry, FieldType, getFieldDisplayValues,
  numberOverrideProcessor, ThemeContext, thresholdsOverrideProcessor, toDataFrame, VizOrientation,
} from "@grafana/data";
import { BigValue, ErrorBoundary, GlobalStyles, PanelChrome, TimeSeries, VizRepeater } from "@grafana/ui";
import { createRoot } from "react-dom/client";

// What is not Grafana's here: the grid, the headings and how a panel's kind is put together from components.
const { BOARD, ANSWERS, RANGE } = window;
const COLUMN = 1400 / 24, UNIT = 38, GAP = 8, TOP = 56;
const theme = createTheme({ colors: { mode: "light" } });
const range = { from: dateTime(RANGE[0] * 1000), to: dateTime(RANGE[1] * 1000) };
const timeRange = { ...range, raw: range };
const as_is = (text) => text;
const number = (text) => (Number.isFinite(Number(text)) ? Number(text) : null);

// Which of a panel's settings there are, and what a panel's kind has where its file says nothing.
const plain = ["unit", "color", "mappings", "noValue"], numbers = ["min", "max", "decimals"];
const custom = ["lineWidth", "fillOpacity", "showPoints", "axisSoftMax"];
const setting = (id, process, isCustom) =>
  ({ id: isCustom ? `custom.${id}` : id, path: id, name: id, isCustom, process, shouldApply: () => true, settings: {} });
const registry = new FieldConfigOptionsRegistry(() => [
  ...plain.map((id) => setting(id, as_is)), ...numbers.map((id) => setting(id, numberOverrideProcessor)),
  setting("thresholds", thresholdsOverrideProcessor), ...custom.map((id) => setting(id, as_is, true)),
]);
const COLORS = { timeseries: { mode: "palette-classic" }, stat: { mode: "thresholds" } };

function frames(panel) {
  const found = ANSWERS[panel.id].map(({ name, refId, values }) => toDataFrame({
    refId,
    fields: [
      { name: "Time", type: FieldType.time, values: values.map(([at]) => at * 1000) },
      { name: "Value", type: FieldType.number, values: values.map(([, text]) => number(text)), config: { displayNameFromDS: name } },
    ],
  }));
  const { defaults, overrides } = panel.fieldConfig;
  const fieldConfig = { defaults: { color: COLORS[panel.type], ...defaults }, overrides };
  return applyFieldOverrides({ data: found, fieldConfig, fieldConfigRegistry: registry, replaceVariables: as_is, theme, timeZone: "utc" });
}

function Lines({ panel, width, height }) {
  return <TimeSeries frames={frames(panel)} timeRange={timeRange} timeZone="utc" structureRev={1}
    width={width} height={height} legend={panel.options.legend} options={panel.options} />;
}

function Stats({ panel, width, height }) {
  const { reduceOptions, colorMode, graphMode, textMode, justifyMode, wideLayout } = panel.options;
  const values = getFieldDisplayValues({
    data: frames(panel), fieldConfig: panel.fieldConfig, reduceOptions, replaceVariables: as_is, theme,
    sparkline: graphMode !== "none", timeZone: "utc",
  });
  return <VizRepeater source={values} getValues={() => values} renderCounter={1} orientation={VizOrientation.Auto}
    autoGrid={true} itemSpacing={3} width={width} height={height}
    renderValue={({ value, width, height, count }) => <BigValue value={value.display} sparkline={value.sparkline} count={count}
      colorMode={colorMode} graphMode={graphMode} textMode={textMode} justifyMode={justifyMode} wideLayout={wideLayout} width={width} height={height} theme={theme} />} />;
}

const KINDS = { timeseries: Lines, stat: Stats };

function Content(props) {
  const Kind = KINDS[props.panel.type];
  const told = (text) => <div className="told" title={props.panel.title} style={{ textAlign: "center", paddingTop: props.height / 2 - 12 }}>{text}</div>;
  if (!ANSWERS[props.panel.id].length) return told(props.panel.fieldConfig.defaults.noValue ?? "No data");
  return <ErrorBoundary>{({ error }) => error ? told(`Error: ${error}`) : <Kind {...props} />}</ErrorBoundary>;
}

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const place = { position: "absolute", left: GAP + x * COLUMN, top: TOP + y * UNIT };
  if (panel.type === "row") return <h5 style={{ ...place, paddingTop: 10 }}>{panel.title}</h5>;
  return <div style={place}>
    <PanelChrome title={panel.title} description={panel.description} width={w * COLUMN - GAP} height={h * UNIT - GAP}>
      {(width, height) => <Content panel={panel} width={width} height={height} />}
    </PanelChrome>
  </div>;
}

createRoot(document.getElementById("board")).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <h3 style={{ position: "absolute", left: GAP, top: 14 }}>{BOARD.title}</h3>
    {BOARD.panels.map((panel) => <Panel key={panel.id} panel={panel} />)}
  </ThemeContext.Provider>,
);

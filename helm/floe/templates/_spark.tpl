{{/* A CronJob that runs Spark, (dict "context" "name" "schedule" "command" "resources"). */}}
{{- define "floe.sparkJob" -}}
{{- $name := .name }}
{{- $schedule := .schedule }}
{{- $command := .command }}
{{- $resources := .resources }}
{{- with .context }}
{{- $full := include "floe.fullname" . }}
{{- $group := first (include "floe.groups" . | fromJson).groups }}
{{- $scheme := ternary "http" "https" (empty .Values.http.tls.secretName) }}
---
apiVersion: batch/v1
kind: CronJob
{{ include "floe.metadata" (list . $name dict dict) }}
spec:
  schedule: {{ $schedule | quote }}
  # A run that is late by more is left out; two at once would only do each other's work.
  startingDeadlineSeconds: 600
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      # The next run does what this one did not.
      backoffLimit: 0
      ttlSecondsAfterFinished: 86400
      template:
        metadata:
          labels: {{- merge (include "floe.testSelector" . | fromYaml) .Values.commonLabels | toYaml | nindent 12 }}
        spec:
          restartPolicy: Never
          serviceAccountName: {{ include "floe.serviceAccountName" . }}
          automountServiceAccountToken: false
          {{- with .Values.imagePullSecrets }}
          imagePullSecrets: {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with .Values.spark.nodeSelector }}
          nodeSelector: {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with .Values.spark.tolerations }}
          tolerations: {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext: {{- include "floe.podSecurity" . | nindent 12 }}
          containers:
            - name: spark
              image: {{ .Values.spark.image }}
              imagePullPolicy: {{ .Values.image.pullPolicy }}
              command: {{- toYaml $command | nindent 16 }}
              workingDir: /var/lib/floe
              # The last lines say what could not be done, or where topic and table differ.
              terminationMessagePolicy: FallbackToLogsOnError
              securityContext: {{- include "floe.containerSecurity" . | nindent 16 }}
              env:
                {{- include "floe.env" (list . $group) | nindent 16 }}
                - name: HOME
                  value: /var/lib/floe
                - name: FLOE_BOOTSTRAP
                  value: {{ printf "%s:%v" $full .Values.kafka.port }}
                - name: FLOE_HTTP
                  value: {{ printf "%s://%s-http:%v" $scheme $full .Values.http.port }}
                - name: FLOE_JARS
                  value: {{ .Values.spark.jars }}
                - name: FLOE_SPARK_JARS
                  value: {{ .Values.spark.jars }}
                - name: FLOE_KAFKA_JARS
                  value: {{ .Values.spark.kafkaJars }}
                {{- with .Values.objectStore.credentialsSecretName }}
                {{- include "floe.secretEnv" (list "AWS_ACCESS_KEY_ID" . "access-key") | trim | nindent 16 }}
                {{- include "floe.secretEnv" (list "AWS_SECRET_ACCESS_KEY" . "secret-key") | trim | nindent 16 }}
                {{- end }}
                {{- with .Values.spark.extraEnv }}
                {{- toYaml . | nindent 16 }}
                {{- end }}
              {{- with .Values.extraEnvFrom }}
              envFrom: {{- toYaml . | nindent 16 }}
              {{- end }}
              resources: {{- toYaml $resources | nindent 16 }}
              volumeMounts:
                - name: config
                  mountPath: /etc/floe/floe.yaml
                  subPath: floe.yaml
                  readOnly: true
                - name: scratch
                  mountPath: /var/lib/floe
                - name: scratch
                  mountPath: /tmp
                  subPath: tmp
                {{- with include "floe.keyMounts" . | trim }}{{- . | nindent 16 }}{{- end }}
                {{- with concat .Values.extraVolumeMounts .Values.spark.extraVolumeMounts }}
                {{- toYaml . | nindent 16 }}
                {{- end }}
          volumes:
            - name: config
              configMap:
                name: {{ $full }}
            - name: scratch
              emptyDir:
                sizeLimit: {{ .Values.spark.scratchSize }}
            {{- with include "floe.keyVolumes" . | trim }}{{- . | nindent 12 }}{{- end }}
            {{- with concat .Values.extraVolumes .Values.spark.extraVolumes }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
{{- end }}
{{ end -}}
